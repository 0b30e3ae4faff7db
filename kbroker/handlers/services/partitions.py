"""The replicas of this node and their logs, as handlers see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from kbroker.cores.replication.fetch_params import FetchParams, FetchResult
from kbroker.cores.replication.fetch_view import FetchView
from kbroker.cores.replication.partition_state import PartitionState
from kbroker.cores.replication.purgatory import Appended, Purgatory, Results
from kbroker.cores.replication.replica_selector import ReplicaSelector
from kbroker.cores.replication.replication_quota import ReplicationQuota
from kbroker.errors import ApiError
from kbroker.handlers.services.connection import Connection
from kbroker.log.log_config import LogConfig
from kbroker.log.log_dir import LogDirDescription
from kbroker.log.partition_log import AppendInfo, PartitionLog
from kbroker.log.producer_entry import VerificationGuard
from kbroker.log.scrubbing import Progress
from kbroker.observe.metrics.traffic import TopicTraffic
from kbroker.runtime.round import Round
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.offset_for_leader_epoch import HandedOver

Placed = tuple[int, int, int, int]
"""Of a gathered batch: first and last offset, log append time (-1 without one), log start offset."""


class Partition(Protocol):
    """A partition of which this node has a replica: its state in replication, and its log."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    state: PartitionState
    is_internal: bool
    offline: bool
    on_write_failed: list[Callable[[ApiError], None]]
    """Called if a batch that `gather` has taken cannot be written; there once it has taken one in this round."""
    traffic: TopicTraffic | None
    """Counts of the topic, on a node that has metrics."""
    bytes_in: int
    bytes_out: int
    requests: int
    """The cost of the partition for this node since the process began."""

    @property
    def log(self) -> PartitionLog:
        """The log, made when it is first asked for. ``ApiError`` KAFKA_STORAGE_ERROR if its disk has failed."""

    @property
    def has_log(self) -> bool:
        """Whether the log exists already."""

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` asks for a flush before what was appended may be acknowledged."""

    @property
    def high_watermark(self) -> int:
        """The exclusive end of what is committed."""

    @property
    def high_watermark_lags(self) -> bool:
        """Whether it is from before this leader's epoch."""

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of what read_committed may see."""

    def doubt(self, offset: int) -> None:
        """Have what is read from the offset's segment verified again."""
        ...

    def acknowledges_at_once(self, required_acks: int) -> bool:
        """Whether an append with ``acks`` of 1 or -1 waits for nothing."""

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """``ApiError`` if a client believes in another leader epoch (-1: in none)."""

    def append(
        self, records: memoryview, required_acks: int, now_ms: int, verification_guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Append as leader, then wake whoever waits. ``ApiError`` for a refused batch."""

    def gather(self, records: memoryview, required_acks: int, now_ms: int, round: Round) -> Placed | None:
        """Judge a batch now and, if it is small, have it written with others of the round at its end.

        None, or ``ApiError``: nothing has happened, and `append` has to see the batch.
        """

    async def flush(self) -> None:
        """Make the log durable. ``ApiError`` KAFKA_STORAGE_ERROR."""

    def storage_failed(self, error: BaseException) -> None:
        """An operation on the log has failed: its log directory goes offline."""

    def low_watermark(self) -> int:
        """The least log start offset of the replicas whose brokers live."""

    def check_follower(self, replica: int, broker_epoch: int) -> None:
        """``ApiError`` for a fetch by a stranger, or by an earlier life of a broker."""

    def follower_fetched(self, replica: int, fetch_offset: int, log_start_offset: int, broker_epoch: int = -1) -> None:
        """Note a follower's progress; the high watermark may follow, and the ISR."""

    def preferred_read_replica(self, fetch_offset: int, select: ReplicaSelector, listener: str) -> int:
        """The follower that a consumer had better read from; -1 if that is this leader."""


class ThrottledReplication(Protocol):
    """The quotas of replication traffic."""

    leader: ReplicationQuota

    def now_ms(self) -> int:
        """The time by which they count."""


class DescribedLogDirs(Protocol):
    """The node's log directories (``node.replicas.replica_log_dirs``)."""

    def describe(self, wanted: Collection[TopicPartition] | None) -> list[LogDirDescription]:
        """Each directory with its logs: those of some partitions, or all for None."""


class Scrubber(Protocol):
    """Verifies the batches of logs (``node.logs.log_scrubber``)."""

    bytes_per_second: int

    @property
    def progress(self) -> Mapping[str, Progress]:
        """The progress in each log directory, by its path."""
        ...

    def begin(self) -> None:
        """Begin a round over every directory that is not under way."""
        ...


class LogMover(Protocol):
    """Moves logs between the node's log directories (``node.replicas.log_mover``)."""

    def alter(self, topic: str, index: int, path: str) -> None:
        """Have a replica's log moved to another directory. ``ApiError``."""


class ReplicaFetchers(Protocol):
    """The tasks that copy what other brokers lead."""

    async def until_clear(self) -> frozenset[int]:
        """Wait a moment if the metadata name leaders that seem to be dead; the brokers there was reason to wait for."""


class Partitions(Protocol):
    """The partitions of which this node has a replica (``node.replicas.replica_manager``)."""

    purgatory: Purgatory

    @property
    def partitions(self) -> Mapping[tuple[str, int], Partition]:
        """The partitions of the node, by topic and index."""

    @property
    def log_dirs(self) -> DescribedLogDirs: ...

    @property
    def log_mover(self) -> LogMover: ...

    @property
    def throttles(self) -> ThrottledReplication: ...

    @property
    def fetchers(self) -> ReplicaFetchers | None:
        """The fetchers of followed partitions; None on a node without other nodes."""

    @property
    def behind(self) -> Mapping[tuple[str, int], bool]:
        """The partitions that are to be brought in step with the metadata before they are used; `find` does."""

    def find(self, topic: str, partition: int) -> Partition | None:
        """Returns the local partition as the latest metadata have it; None if this node has no replica."""

    def get_partition(self, topic: str, partition: int) -> Partition:
        """``ApiError`` UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if others have it."""

    def get_leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """A partition that is led here; ``ApiError`` as `get_partition`, and if it is not, or in another epoch."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, by the metadata."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, by the metadata."""

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the metadata knows the partition."""

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task that lives with the node and must not fail."""

    def watch_produce(
        self, appends: Sequence[Appended], on_complete: Callable[[Results], None], timeout_ms: int
    ) -> None:
        """Have ``on_complete`` called with None or an error for each partition, once all is replicated or cannot be."""

    async def hand_over(self, topic_partition: TopicPartition, asker: int, directory: str) -> HandedOver:
        """Hand the log of a replica that goes over to the broker that gets it (``node.replicas.hand_overs``).
        ``ApiError``."""

    def delete_records(self, topic: str, index: int, offset: int) -> int:
        """Move the log start offset; where it is now. ``ApiError``."""


class FetchReader(Protocol):
    """Reads the partitions of Fetch requests (``node.replicas.fetch_reader``)."""

    async def fetch(self, params: FetchParams, view: FetchView, connection: Connection) -> FetchResult:
        """Read the partitions of a view; if that is less than ``min_bytes``, wait for events and read again."""
