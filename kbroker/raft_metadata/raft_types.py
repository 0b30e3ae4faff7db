"""What the Raft core is given and what it gives back: its settings, its view of the log, what the driver is to do."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kbroker.raft_metadata.election_state import ElectionState
from kbroker.raft_metadata.leader_state import ReplicaProgress
from kbroker.raft_metadata.raft_messages import OutboundRequest, OutboundResponse, SnapshotChunk
from kbroker.raft_metadata.voters import VoterSetHistory
from kbroker.types import OffsetAndEpoch

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The snapshot that formatting writes. It is never sent: the first leader writes what it says into the log."""


class LogView(Protocol):
    """What the core asks of the log and the snapshots."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the latest snapshot if there is none, else 0."""
        ...

    @property
    def voters(self) -> VoterSetHistory:
        """The voter sets in the log."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version`` in the log."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above ``epoch`` ends; the log's end for an epoch above all."""
        ...

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size and some of its bytes; None if there is no such snapshot."""
        ...


class RaftConfig(NamedTuple):
    """Kafka's ``controller.quorum.*``, in milliseconds and bytes."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    auto_join: bool = False
    initial_election_timeout_ms: int = 200
    """Longest wait of a voter that starts and knows no leader. It may be short: a pre-vote harms nobody."""
    refused_election_timeout_ms: int = 100
    """Longest wait of a follower at whose leader's address nobody listens."""


class Ready:
    """What the driver is to do, field by field, before it calls the core again.

    - ``election_state`` is to be on disk before anything that follows is done.
    - ``truncate_to``: cut the log there. ``snapshot``: keep a chunk; with the last one the snapshot replaces the log.
      ``records``: append what the leader sent, as far as it is intact. ``append``: append a batch of control records
      in the epoch of the core.
    - ``flush``: all in the log must be on disk before the messages go out. The driver then calls ``on_flushed`` at
      once. After ``append`` without it, it calls ``on_appended`` at once and ``on_flushed`` when that is so.
    - ``send``: requests; ``respond``: responses to requests that came in.
    - ``high_watermark``: all below is committed; None if it did not move.
    - ``role_changed``: role, epoch or leader are other than before.
    """

    __slots__ = (
        "append",
        "election_state",
        "flush",
        "high_watermark",
        "records",
        "respond",
        "role_changed",
        "send",
        "snapshot",
        "truncate_to",
    )

    def __init__(self) -> None:
        self.election_state: ElectionState | None = None
        self.truncate_to: int | None = None
        self.snapshot: SnapshotChunk | None = None
        self.records = b""
        self.append: list[Any] = []
        self.flush = False
        self.send: list[OutboundRequest] = []
        self.respond: list[OutboundResponse] = []
        self.high_watermark: int | None = None
        self.role_changed = False

    @property
    def needs_disk(self) -> bool:
        """Whether acting on it may have to wait; all else is done in one go."""
        return (
            self.flush or self.election_state is not None or self.truncate_to is not None or self.snapshot is not None
        )


class QuorumView(NamedTuple):
    """The quorum as its leader sees it; the times are of the core's clock, -1 for never."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaProgress]
    observers: list[ReplicaProgress]
