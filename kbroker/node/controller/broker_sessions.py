"""The active controller's side of heartbeats: brokers that send them are unfenced, silent ones are fenced (KIP-631)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.controller.controller_log import ControllerLog
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.broker_changes import (
    leads_any,
    records_to_elect_most_complete,
    records_to_elect_with,
)
from kbroker.raft_metadata.controller.brokers import (
    BrokerRegistration,
    begin_controlled_shutdown,
    check_broker_epoch,
    fence_broker,
    unfence_broker,
)
from kbroker.raft_metadata.controller.directories import directory_records, newly_failed
from kbroker.raft_metadata.controller.sessions import (
    BrokerSessions,
    BrokerState,
    Heartbeat,
    HeartbeatState,
    current_state,
)
from kbroker.raft_metadata.image import BrokerImage
from kbroker.runtime.timing import Alarm
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

REFUSALS = 2
"""Refused probes in a row after which the broker's process counts as gone."""
BETWEEN_PROBES = 0.005
"""Seconds between the first two probes; twice as long each time. Clients look for the new leader within some 20 ms, and
many then only after a second."""
PROBE_SECONDS = 1.0
"""A probe without an answer within this time is not refused: the address may be unreachable."""

STOOD_STILL_MS = 500
"""A controller that wakes later than planned by this much has stood still."""
FORGIVEN_MS = 1000
"""All brokers get so much more time than the controller has stood still."""


class _Suspect(NamedTuple):
    """A broker whose connection has ended."""

    broker_id: int
    broker_epoch: int
    since_ms: int


class SessionKeeper:
    """Sessions of the brokers while this node is the active controller. ``run`` it in a nursery.

    A session shows that a broker's process runs. The broker in the controller's own process is never fenced for its
    silence: while it is alone, it sends a heartbeat only when something has changed.
    """

    def __init__(
        self,
        controller_log: ControllerLog,
        env: Env,
        session_timeout_ms: int,
        incarnation_id: Uuid,
        *,
        has_broker: bool = True,
    ) -> None:
        """``incarnation_id`` is this process's, which its broker registers by, if it ``has_broker``."""
        self._log = controller_log
        self._env = env
        self._incarnation_id = incarnation_id
        self._has_broker = has_broker
        self._sessions = BrokerSessions(session_timeout_ms)
        self._alarm = Alarm()
        self._sleeps_until = math.inf
        """Milliseconds; ``run`` looks at all sessions then. Heartbeats that come meanwhile do not wake it."""
        self._suspects: list[_Suspect] = []
        self.timed_out = 0
        """Sessions of brokers that were over for their silence so far, for metrics."""
        self._said: set[int] = set()
        """Brokers of which the log says that they are waited for."""
        self._heard_on: dict[Connection, tuple[int, int]] = {}
        """Open connections that heartbeats came on: the id and epoch of the last one's broker."""
        controller_log.on_active(self.on_active)

    def _now_ms(self) -> int:
        return int(self._env.now() * 1000)

    def _is_own(self, broker: BrokerImage) -> bool:
        """Whether the broker runs in this process."""
        return self._has_broker and broker.incarnation_id == self._incarnation_id

    def on_active(self) -> None:
        """This node has become the active controller: every unfenced broker gets a whole session."""
        now_ms = self._now_ms()
        controller = self._log.controller
        controller.log_ends.begin(now_ms)
        brokers = controller.image.brokers.values()
        # This node's own broker may be known from its life before, and is about to register.
        own_id = controller.node_id if self._has_broker else -1
        unfenced = [broker for broker in brokers if not broker.fenced and broker.id != own_id]
        self._sessions.start([broker.id for broker in unfenced], now_ms)
        # A broker that died together with the previous controller, or under it, has not been noticed.
        self._suspects = [_Suspect(broker.id, broker.epoch, now_ms) for broker in unfenced]
        self._alarm.ring()

    def silences_ms(self) -> dict[int, int]:
        """The time since the last heartbeat of each unfenced broker of another process; empty unless active."""
        if not self._log.is_active:
            return {}
        now_ms, brokers = self._now_ms(), self._log.controller.image.brokers
        return {
            broker_id: now_ms - seen
            for broker_id, broker in brokers.items()
            if not broker.fenced and not self._is_own(broker) and (seen := self._sessions.last_seen(broker_id))
        }

    def is_live(self, broker: BrokerImage) -> bool:
        """Whether the broker runs in this process, or was heard of within a session."""
        return self._is_own(broker) or self._sessions.is_live(broker, self._now_ms())

    def check_registration(self, registration: BrokerRegistration) -> None:
        """Refuse a second node with the id of a live broker: ``ApiError`` DUPLICATE_BROKER_REGISTRATION.

        A broker that verifies its logs, fenced, lives as well: with its id, another one's empty logs would be elected.
        A restart of the same node is recognised by its disks.
        """
        self._log.controller.log_ends.passed(self._now_ms())
        broker = self._log.controller.image.brokers.get(registration.broker_id)
        if (
            broker is not None
            and not broker.in_controlled_shutdown
            and broker.incarnation_id != registration.incarnation_id
            and set(broker.log_dirs).isdisjoint(registration.log_dirs)
            and self.is_live(broker)
        ):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with that broker id {broker.id}.",
            )

    async def heartbeat(self, beat: Heartbeat, connection: Connection) -> HeartbeatState:
        """A broker shows that it lives. ``ApiError`` if this is not the active controller, or that not the broker's
        present life.

        ``connection`` is where the heartbeat came on; when it ends, the broker is probed at once.
        """
        log, sessions = self._log, self._sessions
        log.check_active()
        broker_id = beat.broker_id
        broker = check_broker_epoch(log.controller.view(), broker_id, beat.broker_epoch)
        was_fenced = broker.fenced
        # At once: to be decided on, it may have to wait for a long change.
        if was_fenced:
            sessions.touch_fenced(broker_id, beat.broker_epoch, self._now_ms())
        else:
            sessions.touch(broker_id, self._now_ms())
        sessions.read_to(broker_id, beat.metadata_offset)
        if beat.is_last:
            self._heard_on.pop(connection, None)
        else:
            self._watch(connection, broker)

        news = log.controller.log_ends.heard(
            broker_id, beat.broker_epoch, beat.log_ends, self._now_ms(), recovers=beat.want_fence
        )

        offset = -1

        def counted(records: Iterator[object]) -> Iterator[object]:
            nonlocal offset
            for record in records:
                offset += 1
                yield record

        def decide(view: ControllerView) -> ControllerResult[BrokerState]:
            nonlocal offset, was_fenced
            broker = check_broker_epoch(view, broker_id, beat.broker_epoch)
            was_fenced |= broker.fenced  # also since the heartbeat came in
            state = sessions.next_state(
                broker,
                beat,
                lambda: leads_any(view, broker_id),
                lambda: bool(newly_failed(view, broker_id, beat.offline_log_dirs)),
                view.image.brokers.values(),
            )
            records = _records(view, broker, current_state(broker), state)
            if was_fenced and state is BrokerState.UNFENCED and not records:
                # Decided anew after a first batch with its unfencing: the others are left.
                records = records_to_elect_with(view, broker_id)
            if news and not records:
                records = records_to_elect_most_complete(view, news)
            if not state.fenced:
                sessions.touch(broker_id, self._now_ms())
            elif state is BrokerState.FENCED:
                sessions.touch_fenced(broker_id, beat.broker_epoch, self._now_ms())
            else:
                sessions.forget_fenced(broker_id)
            if self._next_deadline() < self._sleeps_until:
                self._alarm.ring()
            directories = directory_records(view, broker_id, beat.offline_log_dirs, beat.cordoned_log_dirs)
            offset = view.next_offset - 1
            return ControllerResult(state, counted(chain(records, directories)), at_once=True)

        state = await log.submit(decide)
        now = log.controller.image.brokers.get(broker_id)
        if now is None or now.fenced:
            sessions.end(broker_id)
        elif state is BrokerState.CONTROLLED_SHUTDOWN:
            sessions.begin_shutdown(broker_id, offset)
        return HeartbeatState(beat.metadata_offset >= broker.epoch, state.fenced, state is BrokerState.SHUTDOWN_NOW)

    def _watch(self, connection: Connection, broker: BrokerImage) -> None:
        """Have the broker probed when the connection ends."""
        if connection.closed:
            return
        if connection not in self._heard_on:
            connection.when_closed.append(lambda: self._on_connection_closed(connection))
        self._heard_on[connection] = broker.id, broker.epoch

    def _on_connection_closed(self, connection: Connection) -> None:
        heard = self._heard_on.pop(connection, None)
        if heard is not None and self._log.is_active:
            self._suspects.append(_Suspect(*heard, self._now_ms()))
            self._alarm.ring()

    async def run(self) -> None:
        """Fence brokers whose session is over, or whose process is gone, while this node is the active controller."""
        async with trio.open_nursery() as nursery:
            while True:
                self._sleeps_until = until = self._next_deadline()
                if not self._suspects:
                    await self._alarm.sleep_until((until + 0.5) / 1000)
                late = self._now_ms() - until
                if late > STOOD_STILL_MS:
                    # It was this process that stood still; what the brokers said meanwhile is yet to be read.
                    self._sessions.forgive(int(late) + FORGIVEN_MS)
                suspects, self._suspects = self._suspects, []
                for suspect in suspects:
                    nursery.start_soon(self._look_after, suspect)
                expired = self._sessions.expired(self._now_ms())
                for broker_id in expired:
                    self._sessions.end(broker_id)
                # Beside this task, which otherwise would take the time that a change waits for one that it stood still.
                nursery.start_soon(self._change, expired)

    async def _change(self, expired: Sequence[int]) -> None:
        """Have leaders elected, and the brokers fenced whose sessions have expired."""
        await self._elect_most_complete()
        for broker_id in expired:  # one after the other, which may take long
            broker = self._log.controller.image.brokers.get(broker_id)
            if broker is not None and not broker.fenced and not self._is_own(broker):
                self.timed_out += 1
                await self._fence(broker_id, "has not been heard of for too long", is_silent=True)

    def _next_deadline(self) -> float:
        log_ends = self._log.controller.log_ends
        log_ends.passed(self._now_ms())
        return min(self._sessions.next_deadline(), log_ends.next_deadline())

    async def _elect_most_complete(self) -> None:
        """Have leaders elected where no broker is waited for any more, and say who is waited for elsewhere."""
        log_ends = self._log.controller.log_ends
        if not log_ends.passed(self._now_ms()) or not self._log.is_active:
            self._said.clear()
            return
        if any(True for _ in records_to_elect_most_complete(self._log.controller.view())):
            with suppress(ApiError):  # another controller decides
                await self._log.submit(lambda view: ControllerResult(None, records_to_elect_most_complete(view)))
        missed = log_ends.missed()
        if not missed.keys() <= self._said:
            self._said |= missed.keys()
            logger.warning(
                "no replica is known to have everything of %d partitions: before one is elected, brokers %s are to say "
                "what they have, within %g s or once their logs are verified",
                max(missed.values()),
                sorted(missed),
                log_ends.timeout_ms / 1000,
            )

    async def _look_after(self, suspect: _Suspect) -> None:
        """Fence a broker at once if connections to its address are refused: its process is gone.

        A broker that is silent or unreachable keeps its session.
        """
        refusals = 0
        for attempt in range(self._env.budgets.probes):
            broker = self._log.controller.image.brokers.get(suspect.broker_id)
            if (
                not self._log.is_active
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
        from kbroker.node.peers.peer import nobody_listens  # a node alone looks for nobody

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

    async def _fence(self, broker_id: int, why: str, *, is_silent: bool = False) -> None:
        broker = self._log.controller.image.brokers.get(broker_id)
        if not self._log.is_active or broker is None:
            return

        def decide(view: ControllerView) -> ControllerResult[None]:
            if is_silent and self._sessions.last_seen(broker_id) is not None:
                return ControllerResult(None)  # heard of while this waited for other changes
            logger.warning("broker %d %s and is fenced", broker_id, why)
            return fence_broker(view, broker_id, broker.epoch)

        try:
            await self._log.submit(decide)
        except ApiError as error:
            logger.info("broker %d could not be fenced: %s", broker_id, error)


def _records(
    view: ControllerView, broker: BrokerImage, state: BrokerState, next_state: BrokerState
) -> Iterable[object]:
    """The records of a broker's move from state to state."""
    if state is next_state:
        return ()
    if next_state is BrokerState.UNFENCED:
        return unfence_broker(view, broker.id, broker.epoch).records
    if next_state is BrokerState.CONTROLLED_SHUTDOWN:
        return begin_controlled_shutdown(view, broker.id, broker.epoch).records
    return fence_broker(view, broker.id, broker.epoch).records
