"""The active controller's side of heartbeats: who lives is unfenced, who is silent for too long is fenced (KIP-631)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import trio

from kbroker.errors import ApiError
from kbroker.raft_metadata.controller.sessions import BrokerSessions

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.raft_driver import RaftDriver

logger = logging.getLogger(__name__)


class HeartbeatState(NamedTuple):
    """What the controller answers to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class SessionKeeper:
    """Sessions of the brokers while this node is the active controller. ``run`` it in a nursery."""

    def __init__(self, driver: RaftDriver, env: Env, session_timeout_ms: int) -> None:
        self._driver = driver
        self._env = env
        self._sessions = BrokerSessions(session_timeout_ms)
        self._changed = trio.Event()

    def _now_ms(self) -> int:
        return int(self._env.now() * 1000)

    def on_leading(self) -> None:
        """This node has become the active controller: every unfenced broker gets a whole session."""
        brokers = self._driver.controller.image.brokers.values()
        self._sessions.start([broker.id for broker in brokers if not broker.fenced], self._now_ms())
        self._changed.set()

    async def heartbeat(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, *, want_fence: bool, want_shut_down: bool
    ) -> HeartbeatState:
        """A broker lives. ``ApiError`` if this is not the active controller, or that not the broker's present life."""
        driver = self._driver
        driver.check_leading()
        broker = driver.controller.brokers.check_epoch(broker_id, broker_epoch)
        # The epoch is the offset of the record that registered it: having seen that, it has seen all before.
        caught_up = metadata_offset >= broker_epoch
        if want_fence or want_shut_down:
            self._sessions.end(broker_id)
            if not broker.fenced:
                await driver.submit(lambda controller, now_ms: controller.brokers.fence(broker_id, broker_epoch))
            return HeartbeatState(caught_up, True, want_shut_down)
        if broker.fenced and not caught_up:
            return HeartbeatState(False, True, False)
        self._sessions.touch(broker_id, self._now_ms())
        self._changed.set()
        if broker.fenced:
            await driver.submit(lambda controller, now_ms: controller.brokers.unfence(broker_id, broker_epoch))
        return HeartbeatState(caught_up, False, False)

    async def run(self) -> None:
        """Fence whose session is over, as long as this node is the active controller."""
        while True:
            self._changed = trio.Event()
            with trio.move_on_at((self._sessions.next_deadline() + 0.5) / 1000):
                await self._changed.wait()
            for broker_id in self._sessions.expired(self._now_ms()):
                self._sessions.end(broker_id)
                await self._fence(broker_id)

    async def _fence(self, broker_id: int) -> None:
        driver = self._driver
        broker = driver.controller.image.brokers.get(broker_id)
        if not driver.is_leader or broker is None:
            return
        logger.warning("broker %d has not been heard of for too long and is fenced", broker_id)
        try:
            await driver.submit(lambda controller, now_ms: controller.brokers.fence(broker_id, broker.epoch))
        except ApiError as error:
            logger.info("broker %d could not be fenced: %s", broker_id, error)
