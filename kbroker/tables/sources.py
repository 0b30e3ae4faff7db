"""Where a table's records come from: a running cluster, or a log directory without one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from kbroker.client import Client
from kbroker.client.errors import known
from kbroker.client.reader import DEFAULT_MAX_BYTES, DEFAULT_PARTITION_BYTES, Chunk, Reader, Skipped
from kbroker.client.topics import LATEST, list_offsets, list_ranges
from kbroker.errors import ErrorCode, FatalError
from kbroker.log.checkpoint_files import HIGH_WATERMARKS, CorruptCheckpoint, read_offsets, read_partition_metadata
from kbroker.log.disk import ReadOnlyDisk
from kbroker.log.read_only import PartitionDirectory, SegmentsGone, find_partitions
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.tables.plan import OffsetRange
from kbroker.types import TopicPartition, Uuid, uuid_to_str
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

_FETCH_BYTES: Final = 1 << 20
"""A leader is asked a few times a second, and not for each batch: its time is its producers'."""
_CHUNK_RECORDS: Final = 16_384
_CHUNK_BYTES: Final = 8 << 20
_NO_END: Final = 2**63 - 1
_NO_ID: Final = uuid_to_str(Uuid(bytes(16)))


class Source(Protocol):
    """A topic that is read. ``positions``: partition -> the next offset, behind what `poll` has given."""

    topic: str
    topic_id: str
    ends_late: bool
    """Whether there may be more than `ranges` says."""

    @property
    def positions(self) -> Mapping[int, int]: ...

    def ranges(self) -> dict[int, OffsetRange]:
        """The offsets that each partition has now."""

    def begin(self, starts: Mapping[int, int]) -> None:
        """Read from these offsets on."""

    def poll(self, timeout: float) -> list[Chunk | Skipped]:
        """Records that come within ``timeout`` seconds, as a reader has them that sees no open transactions."""

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether all that can be read below these offsets is read."""

    def oldest(self, positions: Mapping[int, int]) -> int | None:
        """The earliest timestamp of the records at these offsets; None if none can be read."""


class Quota:
    """Bytes a second that are fetched by all who share it, at most. Threads may."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Note bytes that came."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock()) + size / self.rate

    def seconds(self) -> float:
        """The time for which nothing is to be fetched."""
        return max(self._free_at - self._clock(), 0.0)


class ClusterSource:
    """A topic of a cluster, by kbroker's client."""

    ends_late = False

    def __init__(self, client: Client, topic: str, quota: Quota | None = None) -> None:
        """``ClientError`` if there is no such topic."""
        self._quota = quota
        client.partitions_of(topic)
        self.topic = topic
        self._client = client
        [found] = client.refresh([topic])
        self.topic_id = uuid_to_str(found.topic_id)
        if self.topic_id == _NO_ID:
            raise FatalError(f"the cluster gives topic {topic} no id, by which it would be known again: it is too old")
        self._reader: Reader | None = None

    @property
    def positions(self) -> Mapping[int, int]:
        """The reader's."""
        return self._reader.positions if self._reader is not None else {}

    def ranges(self) -> dict[int, OffsetRange]:
        """From the log's start to the high watermark; ``FatalError`` if the topic is another by now."""
        [found] = self._client.refresh([self.topic])
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise FatalError(
                f"topic {self.topic} was deleted; the table keeps the rows that it has. To go on with a new topic of"
                " this name, start again with --new-topic"
            )
        if not found.error_code and uuid_to_str(found.topic_id) != self.topic_id:
            raise FatalError(f"topic {self.topic} was deleted and made anew: start again to see what can be done")
        names = [TopicPartition(self.topic, each) for each in self._client.partitions_of(self.topic)]
        return {name.partition: OffsetRange(*each) for name, each in known(list_ranges(self._client, names)).items()}

    def begin(self, starts: Mapping[int, int]) -> None:
        """Read from these offsets on; what is under way is given up."""
        if self._reader is not None:
            self._reader.close()
        rate = self._quota.rate if self._quota is not None else DEFAULT_MAX_BYTES
        self._reader = Reader(
            self._client,
            self.topic,
            starts,
            partition_bytes=min(rate, DEFAULT_PARTITION_BYTES),
            max_bytes=min(rate, DEFAULT_MAX_BYTES),
            min_bytes=min(rate, _FETCH_BYTES),
        )

    def poll(self, timeout: float) -> list[Chunk | Skipped]:
        """Records of some partitions."""
        assert self._reader is not None
        if self._quota is None:
            return self._reader.poll(timeout)
        if seconds := self._quota.seconds():
            time.sleep(min(seconds, timeout))
            return []
        before = self._reader.received_bytes
        came = self._reader.poll(timeout)
        self._quota.take(self._reader.received_bytes - before)
        return came

    def oldest(self, positions: Mapping[int, int], timeout: float = 5.0) -> int | None:
        """The earliest timestamp of the records at these offsets; None if none can be read."""
        found: dict[int, int] = {}
        reader = Reader(self._client, self.topic, positions, read_committed=False, partition_bytes=1)
        deadline = time.monotonic() + timeout
        while len(found) < len(positions) and (left := deadline - time.monotonic()) > 0:
            for each in reader.poll(left):
                if isinstance(each, Chunk):
                    found.setdefault(each.partition, each.records[0].timestamp)
        reader.close()
        return min((each for each in found.values() if each >= 0), default=None)

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether every partition is read as far as its last stable offset, or the end that is asked for."""
        left = {TopicPartition(self.topic, each) for each, end in ends.items() if self.positions.get(each, end) < end}
        if not left:
            return True
        stable = known(list_offsets(self._client, dict.fromkeys(left, LATEST), read_committed=True))
        return all(self.positions[name.partition] >= listed.offset for name, listed in stable.items())


class DirectorySource:
    """A topic in a log directory, whose node may run or be gone: what is committed there."""

    ends_late = True

    def __init__(self, log_dir: str, topic: str) -> None:
        """``FatalError`` if there is no such topic."""
        self._log_dir = log_dir
        self._partitions: dict[int, PartitionDirectory] = {}
        self.topic = topic
        self.topic_id = self._find()
        self._ends: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._coming: Iterator[Chunk | Skipped] = iter(())
        self._is_told = False
        """Whether the end that there was is told."""

    def _find(self) -> str:
        """Find the partitions that there are now; the id of the topic."""
        found = {each.topic_partition.partition: each for each in find_partitions(self._log_dir, self.topic)}
        if not found:
            raise FatalError(f"there is no topic {self.topic} in {self._log_dir}")
        self._partitions = {partition: self._partitions.get(partition, each) for partition, each in found.items()}
        first = next(iter(found.values()))
        try:
            topic_id = read_partition_metadata(ReadOnlyDisk(), first.path)
        except CorruptCheckpoint as error:
            raise FatalError(str(error)) from None
        if topic_id is None:
            raise FatalError(f"{first.path} has no partition.metadata, by whose id a topic is known again")
        return uuid_to_str(topic_id)

    @property
    def positions(self) -> Mapping[int, int]:
        """Behind the records that were given; at a partition's end behind what no reader sees, too."""
        return self._positions

    def ranges(self) -> dict[int, OffsetRange]:
        """From the log's start to the high watermark that the node has noted; more may be taken back."""
        if self._find() != self.topic_id:
            raise FatalError(f"topic {self.topic} was deleted and made anew: start again to see what can be done")
        try:
            noted = read_offsets(ReadOnlyDisk(), os.path.join(self._log_dir, HIGH_WATERMARKS))
        except CorruptCheckpoint as error:
            raise FatalError(str(error)) from None
        if noted is None:
            raise FatalError(
                f"{self._log_dir} has no {HIGH_WATERMARKS}, which says what is committed: start a node on it once"
            )
        ranges = {}
        for partition, directory in self._partitions.items():
            start = directory.log_start_offset()
            ranges[partition] = OffsetRange(start, max(noted.get(directory.topic_partition, start), start))
        return ranges

    def begin(self, starts: Mapping[int, int]) -> None:
        """Read from these offsets on."""
        self._positions = dict(starts)
        self._look()

    def _look(self) -> None:
        """Go on to the ends that there are now."""
        self._ends = {partition: end for partition, (_, end) in self.ranges().items() if partition in self._positions}
        self._coming = self._chunks()

    def poll(self, timeout: float) -> list[Chunk | Skipped]:
        """The next records; none at the end, where it waits for more after that is told once."""
        try:
            if (came := next(self._coming, None)) is not None:
                self._is_told = False
                return [came]
            if self._is_told:
                time.sleep(timeout)
                self._look()
            else:
                self._is_told = True
            return []
        except CorruptSegment as error:
            raise FatalError(f"{error}: kbroker scrub tells more") from None
        except OSError as error:
            raise FatalError(f"{self.topic} in {self._log_dir} cannot be read: {error.strerror}") from None

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether all is read below these offsets, or below a transaction that is open."""
        return all(self._positions[each] >= min(ends[each], end) for each, end in self._ends.items() if each in ends)

    def _chunks(self) -> Iterator[Chunk | Skipped]:
        for partition in list(self._ends):
            while True:
                try:
                    yield from self._records(partition)
                    break
                except SegmentsGone as gone:
                    self._positions[partition] = gone.end
                    yield Skipped(partition, gone.start, gone.end)

    def _records(self, partition: int) -> Iterator[Chunk]:
        directory = self._partitions[partition]
        # No transaction that is open began before what was read.
        stable = directory.last_stable_offset(stable=self._positions[partition])
        end = self._ends[partition] = min(self._ends[partition], stable)
        some: list[Record] = []
        size = 0
        try:
            for record in directory.records(self._positions[partition], end, stable=stable, whole=True):
                some.append(record)
                size += len(record.value or b"")
                if len(some) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
                    yield self._given(partition, some)
                    some, size = [], 0
        except SegmentsGone:
            if some:
                yield self._given(partition, some)
            raise
        if some:
            yield self._given(partition, some)
        self._positions[partition] = max(self._positions[partition], end)

    def _given(self, partition: int, records: list[Record]) -> Chunk:
        self._positions[partition] = records[-1].offset + 1
        return Chunk(partition, records, TimestampType.CREATE_TIME)

    def oldest(self, positions: Mapping[int, int]) -> int | None:
        """The earliest timestamp of the records at these offsets; None if none can be read."""
        found = [next(self._partitions[each].records(at, stable=_NO_END), None) for each, at in positions.items()]
        return min((each.timestamp for each in found if each is not None and each.timestamp >= 0), default=None)
