"""Sessions of brokers: the last heartbeat of each, and the states that heartbeats move a broker through (KIP-631,
Kafka's ``BrokerHeartbeatManager``).

Sessions are not in the log: a new active controller gives every broker a whole session from its start.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping

from kbroker.raft_metadata.controller.surviving_logs import Key, LogEnd
from kbroker.raft_metadata.image import BrokerImage
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple


class Heartbeat(NamedTuple):
    """The fields of BrokerHeartbeat. ``cordoned_log_dirs`` is None while the broker does not know them.

    ``is_last``: it stops without a controlled shutdown, and is to be missed only when its session is over.
    ``log_ends``: what it has of partitions without a leader; None from a broker that does not know the question.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_last: bool = False
    log_ends: Mapping[Key, LogEnd] | None = None


class HeartbeatState(NamedTuple):
    """The controller's answer to a heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class BrokerState(enum.Enum):
    """The state of a broker; each heartbeat may move it on.

    FENCED -> UNFENCED when it has seen its own registration, and has not just lost a log directory.
    UNFENCED -> CONTROLLED_SHUTDOWN when it wants to stop and leads something: others become leaders.
    CONTROLLED_SHUTDOWN -> SHUTDOWN_NOW when it leads nothing and all active brokers know that.
    Any -> SHUTDOWN_NOW when it wants to stop and leads nothing. UNFENCED -> FENCED when it asks for it.
    """

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()

    @property
    def fenced(self) -> bool:
        """Whether clients do not see it."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def current_state(broker: BrokerImage) -> BrokerState:
    """The state that the metadata shows."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


class BrokerSessions:
    """The last heartbeat of each broker, and its time. Times are milliseconds of a monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._seen: dict[int, int] = {}
        """The time of each unfenced broker's last heartbeat."""
        self._fenced: dict[int, tuple[int, int]] = {}
        """The epoch, and the time, of each fenced broker's last heartbeat. Nobody misses it: it only keeps its id."""
        self._metadata_offsets: dict[int, int] = {}
        """The metadata offset that each broker has reported."""
        self._shutdown_offsets: dict[int, int] = {}
        """The metadata offset that all others must have reached before a broker in controlled shutdown may go."""

    def start(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """Give each unfenced broker a session: this node has become the active controller."""
        self._seen = dict.fromkeys(broker_ids, now_ms)
        self._fenced.clear()
        self._metadata_offsets.clear()
        self._shutdown_offsets.clear()

    def touch(self, broker_id: int, now_ms: int) -> None:
        """Begin the broker's session again, by a heartbeat of an unfenced broker."""
        self._seen[broker_id] = now_ms
        self.forget_fenced(broker_id)

    def touch_fenced(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Note a heartbeat of a broker that stays fenced: it may verify its logs for long."""
        self._fenced[broker_id] = broker_epoch, now_ms

    def forget_fenced(self, broker_id: int) -> None:
        """Let the id of a fenced broker go: it stops."""
        self._fenced.pop(broker_id, None)

    def read_to(self, broker_id: int, metadata_offset: int) -> None:
        """Note the metadata offset that a heartbeat reports."""
        self._metadata_offsets[broker_id] = metadata_offset

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Others lead from the record at ``offset`` on; a later offset for the same shutdown does not count."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def forgive(self, ms: int) -> None:
        """Extend every session by ``ms``."""
        self._seen = {broker_id: seen + ms for broker_id, seen in self._seen.items()}
        self._fenced = {broker_id: (epoch, seen + ms) for broker_id, (epoch, seen) in self._fenced.items()}

    def end(self, broker_id: int) -> None:
        """End the session of a broker that is fenced or gone."""
        self._seen.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def last_seen(self, broker_id: int) -> int | None:
        """The time of the broker's last heartbeat; None if it has no session."""
        return self._seen.get(broker_id)

    def is_live(self, broker: BrokerImage, now_ms: int) -> bool:
        """Whether the broker, fenced or not, was heard of within a session (Kafka's ``hasValidSession``)."""
        seen = self._seen.get(broker.id)
        if broker.fenced:
            epoch, heard = self._fenced.get(broker.id, (-1, 0))
            seen = heard if epoch == broker.epoch else None
        return seen is not None and now_ms - seen < self._session_timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """The brokers whose sessions have expired, by id."""
        return sorted(broker_id for broker_id, seen in self._seen.items() if now_ms - seen >= self._session_timeout_ms)

    def next_deadline(self) -> float:
        """The time at which the first session expires."""
        return min(self._seen.values(), default=math.inf) + self._session_timeout_ms

    def next_state(
        self,
        broker: BrokerImage,
        beat: Heartbeat,
        leads_any: Callable[[], bool],
        loses_directory: Callable[[], bool],
        brokers: Iterable[BrokerImage],
    ) -> BrokerState:
        """The state that the heartbeat moves the broker to. ``brokers`` are all registered ones.

        ``loses_directory`` says whether it is the heartbeat by which a log directory is known to have failed.
        """
        state = current_state(broker)
        if state is BrokerState.FENCED:
            if beat.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            # The epoch is the offset of its registration: a broker that has read it has read all before it.
            caught_up = not beat.want_fence and beat.metadata_offset >= broker.epoch
            # With a directory lost, the next heartbeat unfences it: it must not be elected for what has just failed.
            return BrokerState.UNFENCED if caught_up and not loses_directory() else state
        if state is BrokerState.UNFENCED:
            self._shutdown_offsets.pop(broker.id, None)  # of a life before, which a kill has ended
            if beat.want_fence:
                return BrokerState.SHUTDOWN_NOW if beat.want_shut_down else BrokerState.FENCED
            if beat.want_shut_down:
                return BrokerState.CONTROLLED_SHUTDOWN if leads_any() else BrokerState.SHUTDOWN_NOW
            return state
        offset = self._shutdown_offsets.get(broker.id, math.inf)
        known = all(self._metadata_offsets.get(other.id, -1) >= offset for other in brokers if other.active)
        return BrokerState.SHUTDOWN_NOW if known and not leads_any() else state
