"""The active controller's side of heartbeats: who lives is unfenced, who is silent for too long is fenced (KIP-631)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peer import nobody_listens
from kbroker.raft_metadata.controller import Controller, ControllerResult
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.directories import directory_records
from kbroker.raft_metadata.controller.sessions import BrokerSessions, BrokerState, Heartbeat, current_state
from kbroker.raft_metadata.image import BrokerImage
from kbroker.timing import Alarm

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.handlers.context import ConnectionInfo
    from kbroker.node.raft_driver import RaftDriver

logger = logging.getLogger(__name__)

PROBES = 9
"""So often a broker is looked after whose connection has ended; then its session decides."""
REFUSALS = 2
"""So many times in a row it must be found not to run."""
BETWEEN_PROBES = 0.005
"""Seconds between the first two; twice as long each time. Clients look for the new leader within some 20 ms, and many
then only after a second."""
PROBE_SECONDS = 1.0
"""An address that says nothing for so long is not one where nobody listens."""

STOOD_STILL_MS = 500
"""Whoever wakes so late has stood still."""
FORGIVEN_MS = 1000
"""So much more time all get than the controller has stood still."""


class HeartbeatState(NamedTuple):
    """What the controller answers to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class _Suspect(NamedTuple):
    """A broker whose connection has ended."""

    broker_id: int
    broker_epoch: int
    since_ms: int


class SessionKeeper:
    """Sessions of the brokers while this node is the active controller. ``run`` it in a nursery."""

    def __init__(self, driver: RaftDriver, env: Env, session_timeout_ms: int) -> None:
        self._driver = driver
        self._env = env
        self._sessions = BrokerSessions(session_timeout_ms)
        self._alarm = Alarm()
        self._sleeps_until = math.inf
        """Milliseconds; ``run`` looks at all sessions then. Heartbeats that come meanwhile do not wake it."""
        self._suspects: list[_Suspect] = []

    def _now_ms(self) -> int:
        return int(self._env.now() * 1000)

    def on_leading(self) -> None:
        """This node has become the active controller: every unfenced broker gets a whole session."""
        brokers = self._driver.controller.image.brokers.values()
        now_ms = self._now_ms()
        # This node's own broker lives as long as the controller.
        unfenced = [broker for broker in brokers if not broker.fenced and broker.id != self._driver.node_id]
        self._sessions.start([broker.id for broker in unfenced], now_ms)
        # Who died with the controller before, or under it, has told nobody.
        self._suspects = [_Suspect(broker.id, broker.epoch, now_ms) for broker in unfenced]
        self._alarm.ring()

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

    async def heartbeat(self, beat: Heartbeat, connection: ConnectionInfo) -> HeartbeatState:
        """A broker lives. ``ApiError`` if this is not the active controller, or that not the broker's present life."""
        driver, sessions = self._driver, self._sessions
        driver.check_leading()
        broker_id = beat.broker_id
        broker = driver.controller.brokers.check_epoch(broker_id, beat.broker_epoch)
        sessions.read_to(broker_id, beat.metadata_offset)
        connection.when_closed = partial(self._on_connection_closed, broker_id, broker.epoch)

        def decide(controller: Controller, now_ms: int) -> ControllerResult[tuple[BrokerState, int]]:
            broker = controller.brokers.check_epoch(broker_id, beat.broker_epoch)
            next_state = sessions.next_state(
                broker,
                beat,
                lambda: controller.leadership.leads_any(broker_id),
                controller.image.brokers.values(),
            )
            records = list(_records(controller, broker, current_state(broker), next_state))
            records += directory_records(controller, broker_id, beat.offline_log_dirs, beat.cordoned_log_dirs)
            return ControllerResult((next_state, controller.next_offset + len(records) - 1), records)

        result = decide(driver.controller, 0)
        if not result.response[0].fenced:
            sessions.touch(broker_id, self._now_ms())
            if sessions.next_deadline() < self._sleeps_until:
                self._alarm.ring()
        state, offset = await driver.submit(decide) if result.records else result.response
        now = driver.controller.image.brokers.get(broker_id)
        if now is None or now.fenced:
            sessions.end(broker_id)
        elif state is BrokerState.CONTROLLED_SHUTDOWN:
            sessions.begin_shutdown(broker_id, offset)
        return HeartbeatState(beat.metadata_offset >= broker.epoch, state.fenced, state is BrokerState.SHUTDOWN_NOW)

    def _on_connection_closed(self, broker_id: int, broker_epoch: int) -> None:
        if self._driver.is_leader:
            self._suspects.append(_Suspect(broker_id, broker_epoch, self._now_ms()))
            self._alarm.ring()

    async def run(self) -> None:
        """Fence whose session is over, or whose process is gone, as long as this node is the active controller."""
        async with trio.open_nursery() as nursery:
            while True:
                self._sleeps_until = until = self._sessions.next_deadline()
                if not self._suspects:
                    await self._alarm.sleep_until((until + 0.5) / 1000)
                late = self._now_ms() - until
                if late > STOOD_STILL_MS:
                    # It was this process that stood still; what the brokers said meanwhile is yet to be read.
                    self._sessions.forgive(int(late) + FORGIVEN_MS)
                suspects, self._suspects = self._suspects, []
                for suspect in suspects:
                    nursery.start_soon(self._look_after, suspect)
                for broker_id in self._sessions.expired(self._now_ms()):
                    self._sessions.end(broker_id)
                    await self._fence(broker_id, "has not been heard of for too long")

    async def _look_after(self, suspect: _Suspect) -> None:
        """Fence a broker now if nobody listens where it is registered: its process is gone, and no session has to run
        out for that. One that is silent or cannot be reached keeps its session."""
        refusals = 0
        for attempt in range(PROBES):
            broker = self._driver.controller.image.brokers.get(suspect.broker_id)
            if (
                not self._driver.is_leader
                or broker is None
                or broker.epoch != suspect.broker_epoch
                or broker.fenced
                or (self._sessions.last_seen(broker.id) or 0) > suspect.since_ms
            ):
                return
            # A process that is being ended may still take a connection, so that one is no proof of life.
            refusals = refusals + 1 if await self._refuses(broker) else 0
            if refusals == REFUSALS:
                self._sessions.end(suspect.broker_id)
                await self._fence(suspect.broker_id, "does not run any more")
                return
            await trio.sleep(BETWEEN_PROBES * 2**attempt)

    async def _refuses(self, broker: BrokerImage) -> bool:
        """Whether none of the broker's listeners is there. Some may not be meant for this node: one is enough."""
        for endpoint in broker.endpoints.values():
            with trio.move_on_after(PROBE_SECONDS):
                try:
                    stream = await self._env.network.connect(endpoint.host, endpoint.port)
                    stream.close()
                except OSError as error:
                    if nobody_listens(error):
                        continue
            return False
        return bool(broker.endpoints)

    async def _fence(self, broker_id: int, why: str) -> None:
        driver = self._driver
        broker = driver.controller.image.brokers.get(broker_id)
        if not driver.is_leader or broker is None:
            return
        logger.warning("broker %d %s and is fenced", broker_id, why)
        try:
            await driver.submit(lambda controller, now_ms: controller.brokers.fence(broker_id, broker.epoch))
        except ApiError as error:
            logger.info("broker %d could not be fenced: %s", broker_id, error)


def _records(controller: Controller, broker: BrokerImage, state: BrokerState, next_state: BrokerState) -> Sequence[Any]:
    """What a broker's move from state to state writes."""
    if state is next_state:
        return ()
    brokers = controller.brokers
    if next_state is BrokerState.UNFENCED:
        return brokers.unfence(broker.id, broker.epoch).records
    if next_state is BrokerState.CONTROLLED_SHUTDOWN:
        return brokers.begin_controlled_shutdown(broker.id, broker.epoch).records
    return brokers.fence(broker.id, broker.epoch).records
