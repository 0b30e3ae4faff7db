"""The active controller's side of heartbeats: who lives is unfenced, who is silent for too long is fenced (KIP-631)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller import Controller, ControllerResult
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.directories import directory_records
from kbroker.raft_metadata.controller.sessions import BrokerSessions, Heartbeat

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

    def check_registration(self, registration: BrokerRegistration) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION for a second node with the id of one that lives. The same node
        started anew is known by its disks."""
        broker = self._driver.controller.image.brokers.get(registration.broker_id)
        if (
            broker is not None
            and broker.active
            and broker.incarnation_id != registration.incarnation_id
            and set(broker.log_dirs).isdisjoint(registration.log_dirs)
            and self._sessions.is_live(broker.id, self._now_ms())
        ):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with that broker id {broker.id}.",
            )

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatState:
        """A broker lives. ``ApiError`` if this is not the active controller, or that not the broker's present life."""
        driver = self._driver
        driver.check_leading()
        broker_id = beat.broker_id
        fenced = driver.controller.brokers.check_epoch(broker_id, beat.broker_epoch).fenced
        # The epoch is the offset of the record that registered it: having seen that, it has seen all before.
        caught_up = beat.metadata_offset >= beat.broker_epoch
        wants_out = beat.want_fence or beat.want_shut_down
        if wants_out:
            self._sessions.end(broker_id)
        elif caught_up or not fenced:
            self._sessions.touch(broker_id, self._now_ms())
            self._changed.set()

        def decide(controller: Controller, now_ms: int) -> ControllerResult[bool]:
            brokers = controller.brokers
            records: list[Any] = []
            stays_fenced = fenced
            if wants_out:
                records += brokers.fence(broker_id, beat.broker_epoch).records
                stays_fenced = True
            elif fenced and caught_up:
                records += brokers.unfence(broker_id, beat.broker_epoch).records
                stays_fenced = False
            records += directory_records(controller, broker_id, beat.offline_log_dirs, beat.cordoned_log_dirs)
            return ControllerResult(stays_fenced, records)

        if not decide(driver.controller, 0).records:
            return HeartbeatState(caught_up, fenced or wants_out, beat.want_shut_down)
        is_fenced = await driver.submit(decide)
        return HeartbeatState(caught_up, is_fenced, beat.want_shut_down)

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
