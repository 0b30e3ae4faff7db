"""The client of a case: one small synchronous interface over very different libraries.

Each client's folder has an adapter (``client.py``) that implements :class:`Client` with the library's own calls
and nothing else: the library's way of talking to the broker is judged. An ability that a library lacks is left out of
its `features`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.errors import ErrorCode
from tests.patience import LONG

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EARLIEST = "earliest"
"""A start position for reading: an offset, or one of these two."""
LATEST = "latest"
MAX_TIMESTAMP = "max_timestamp"
MAX_TRANSACTION_MS = 900_000
"""The longest time-out of a transaction that brokers allow unless they are told otherwise."""

ALL_FEATURES = frozenset(
    {
        "read",
        "create_topic",
        "delete_topic",
        "create_partitions",
        "delete_records",
        "describe_configs",
        "alter_configs",
        "describe_cluster",
        "list_topics",
        "list_offsets",
        "offset_for_timestamp",
        "offset_of_max_timestamp",
        "idempotent_producer",
        "produced_offsets",
        "produced_timestamps",
        "record_timestamps",
        "timestamp_type",
        "null_header_value",
        "duplicate_header_keys",
        "fetch_limits",
        "offset_out_of_range_error",
        "unknown_topic_error",
        "auto_create_topic",
        "no_auto_create",
        "read_to_end",
        "groups",
        "transactions",
        "aborted_transactions",
        "transaction_version_2",
        *(f"codec_{codec}" for codec in CODECS),
    }
)
"""Everything that a client may be able to do; see :class:`Client`."""


class ClientError(Exception):
    """The broker (or the client on its own) refused; `name` is Kafka's error name where the client tells it."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name


class ReadTimeout(Exception):
    """Fewer records than asked for came in time; `records` are those that did."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(f"only {len(records)} records came in time")
        self.records = list(records)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record to produce, or one that was read. `timestamp` in milliseconds, None leaves it to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = -1
    timestamp_type: str | None = None
    """``CreateTime`` or ``LogAppendTime``, if the client exposes it."""

    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """The parts that must come back as they were sent."""
        return (self.key, self.value, self.headers)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a producer: records that it sends without waiting for any of them, and what it does then.

    `then` is "flush", "commit", "abort", or "" to begin the next step at once.
    """

    topic: str = ""
    records: Sequence[Record] = ()
    then: str = ""


class Producing(NamedTuple):
    """The settings of a producer of one call."""

    acks: int
    compression: str
    idempotent: bool
    max_request_size: int | None
    linger_ms: int
    timeout: float


class Stepping(NamedTuple):
    """The settings of a producer of several steps."""

    transactional_id: str | None
    idempotent: bool
    batch_bytes: int
    timeout: float


class Reading(NamedTuple):
    """The settings of a consumer of one partition."""

    timeout: float
    max_wait_ms: int
    min_bytes: int
    max_bytes: int | None
    max_partition_bytes: int | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as DescribeCluster (or Metadata) describes it."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[tuple[int, str, int], ...]


class Client:
    """A client under test. Every method raises ClientError when the broker refuses."""

    name = "?"
    version = "?"
    features: frozenset[str] = frozenset()

    def close(self) -> None:
        """Let go of connections and processes."""

    # topics
    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def create_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def list_topics(self) -> set[str]:
        raise NotImplementedError

    def partition_count(self, topic: str) -> int:
        """Number of partitions, without creating the topic; UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        raise NotImplementedError

    def describe_cluster(self) -> Cluster:
        raise NotImplementedError

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        """All configs of the topic, defaults included."""
        raise NotImplementedError

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set configs; None puts one back to its default. Others stay as they are."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError

    # producing
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = False,
        max_request_size: int | None = None,
        linger_ms: int = 5,
        timeout: float = LONG,
    ) -> list[int]:
        """Send `records` to the partitions they name, wait for the acknowledgements, return their offsets.

        Offsets are -1 with acks=0 or where the client does not tell them.
        """
        how = Producing(acks, compression, idempotent, max_request_size, linger_ms, timeout)
        return self._produce(topic, records, how)

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        raise NotImplementedError

    def produce_steps(
        self,
        steps: Sequence[Step],
        *,
        transactional_id: str | None = None,
        idempotent: bool = False,
        batch_bytes: int = 16384,
        timeout: float = LONG,
    ) -> None:
        """Carry out `steps` with one producer, five requests in flight to each broker where the client can have them.

        The client chooses the partitions, by the keys. With a `transactional_id` a transaction begins with the first
        step and with each one that follows an end. Without, all is flushed at the end.
        """
        self._produce_steps(steps, Stepping(transactional_id, idempotent, batch_bytes, timeout))

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        raise NotImplementedError

    # reading
    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int | str = EARLIEST,
        count: int = 1,
        *,
        timeout: float = LONG,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
    ) -> list[Record]:
        """Assign one partition, seek to `start`, read `count` records. ReadTimeout if they do not come in `timeout` s.

        An offset that does not exist is an error (OFFSET_OUT_OF_RANGE), never a reset.
        """
        how = Reading(timeout, max_wait_ms, min_bytes, max_bytes, max_partition_bytes)
        return self._read(topic, partition, start, count, how)

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        raise NotImplementedError

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        """With one consumer, all partitions from their starts to the ends that this isolation level sees.

        A fetch brings at most about `fetch_bytes` of all partitions together. ReadTimeout if it takes too long.
        """
        raise NotImplementedError

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        """As the only member of `group`: read `count` records, commit their offsets in all partitions, and leave.

        It begins where the group has committed, at the start where it has not. ReadTimeout if they do not come.
        """
        raise NotImplementedError

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        """Offset of EARLIEST, LATEST or MAX_TIMESTAMP, or the first at or after a timestamp (ms); -1 if there is
        none."""
        raise NotImplementedError


def next_offsets(records: Sequence[Record]) -> dict[int, int]:
    """By partition, the offset after the last of `records`: what a group commits."""
    return {record.partition: record.offset + 1 for record in records}
