"""``__cluster_metadata-0``: the metadata log on this node's disk, a partition log of batches of metadata records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kbroker.errors import FatalError
from kbroker.log.disk import Disk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.raft_metadata.batches import (
    MetadataBatch,
    decode_batches,
    encode_control_records,
    encode_records,
)
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition
from kbroker.wire.errors import WireError

_READ_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Largest batch of the metadata log (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``)."""


class FlushWork(Protocol):
    """A flush in two steps."""

    def run(self) -> None: ...

    def end(self) -> None: ...


class RecordStore(Protocol):
    """The part of a partition log that the metadata log is built on."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    def append(self, data: bytearray) -> None:
        """Append batches whose offsets and epochs are in place."""
        ...

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any."""
        ...

    def begin_flush(self) -> FlushWork | None:
        """What makes all durable that is appended so far: None if it is. ``run`` may be called from another thread
        while appends go on, then ``end`` from the owner's."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Forget what a snapshot holds."""
        ...

    def close(self) -> None: ...


class PartitionStore:
    """A :class:`RecordStore` on the node's disk."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    @classmethod
    def open(
        cls, directory: str, disk: Disk, *, segment_bytes: int, now_ms: int, snapshot_offset: int = 0
    ) -> PartitionStore:
        """Open or create the log in ``directory``; a torn tail is cut, as no one was told of it.

        ``snapshot_offset``: the end offset of the latest snapshot, below which nothing is needed or trusted.
        """
        config = LogConfig(
            segment_bytes=segment_bytes,
            max_message_bytes=MAX_BATCH_BYTES,
            retention_ms=-1,
            retention_bytes=-1,
            cleanup_policy=frozenset({"delete"}),
            file_delete_delay_ms=0,
        )
        disk.make_dirs(directory)
        log = PartitionLog.open(
            directory,
            TopicPartition(METADATA_TOPIC, 0),
            METADATA_TOPIC_ID,
            config,
            disk,
            now_ms=now_ms,
            clean_shutdown=False,
            recovery_point=snapshot_offset,
            log_start_offset=snapshot_offset,
        )
        return cls(log)

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return max(self._log.leader_epochs.latest, 0)

    def append(self, data: bytearray) -> None:
        # The time matters only for rolling by age, which this log does not do.
        self._log.append_as_follower(memoryview(data), now_ms=0)

    def read(self, offset: int, max_bytes: int) -> bytes:
        return bytes(self._log.read_bytes(offset, max_bytes, max_offset=self._log.log_end_offset))

    def begin_flush(self) -> FlushWork | None:
        return self._log.begin_flush()

    def truncate_to(self, offset: int) -> None:
        self._log.truncate_to(offset)

    def delete_before(self, offset: int, now_ms: int) -> None:
        log = self._log
        log.maybe_increment_log_start_offset(offset)
        if log.active_segment.base_offset < offset:
            log.roll(now_ms)
        log.delete_old_segments(now_ms)
        log.delete_expired_files(now_ms)

    def close(self) -> None:
        self._log.close()


class MemoryStore:
    """A :class:`RecordStore` without a disk, for tests. ``crash`` forgets what is not flushed."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.log_start_offset = 0
        self.flushed = 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1][2] if self.batches else 0

    def append(self, data: bytearray) -> None:
        whole = bytes(data)
        position = 0
        for batch in decode_batches(whole):
            if batch.base_offset != self.log_end_offset:
                raise ValueError(f"batch at {batch.base_offset} appended at {self.log_end_offset}")
            raw = whole[position : position + batch.size]
            self.batches.append((batch.base_offset, batch.last_offset, batch.epoch, raw))
            position += batch.size

    def read(self, offset: int, max_bytes: int) -> bytes:
        out = b""
        for _, last, _, raw in self.batches:
            if last < offset:
                continue
            if out and len(out) + len(raw) > max_bytes:
                break
            out += raw
        return out

    def begin_flush(self) -> FlushWork | None:
        return _MemoryFlush(self, len(self.batches))

    def crash(self) -> None:
        """Lose what was not flushed."""
        del self.batches[self.flushed :]

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] < offset]
        self.flushed = min(self.flushed, len(self.batches))

    def delete_before(self, offset: int, now_ms: int) -> None:
        kept = [batch for batch in self.batches if batch[1] >= offset]
        self.flushed -= len(self.batches) - len(kept)
        self.batches = kept
        self.log_start_offset = max(self.log_start_offset, offset)

    def close(self) -> None:
        """Nothing to give back."""


class _MemoryFlush:
    def __init__(self, store: MemoryStore, count: int) -> None:
        self._store = store
        self._count = count

    def run(self) -> None:
        """Memory is durable enough."""

    def end(self) -> None:
        self._store.flushed = max(self._store.flushed, self._count)


class ReplicatedLog:
    """The metadata log: records in, batches out."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.snapshot_epoch = 0
        """Epoch of the snapshot that the log follows on, for an empty log."""
        self.bytes_seen = 0
        """Bytes appended or read since this object was made: how much a snapshot would save."""

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self._store.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._store.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before it."""
        return self._store.last_epoch or self.snapshot_epoch

    def append_records(
        self, records: Sequence[Any], epoch: int, *, timestamp_ms: int, metadata_version: int
    ) -> OffsetAndEpoch:
        """Append one batch and say where its last record is. Not durable before ``flush``.

        ``ValueError`` if the batch is too big for the log.
        """
        base_offset = self.end_offset
        data = encode_records(
            records,
            base_offset=base_offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            metadata_version=metadata_version,
        )
        if len(data) > MAX_BATCH_BYTES:
            raise ValueError(f"{len(records)} metadata records take {len(data)} bytes, more than a batch may have")
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        return OffsetAndEpoch(base_offset + len(records) - 1, epoch)

    def append_control(self, records: Sequence[Any], epoch: int, *, timestamp_ms: int) -> OffsetAndEpoch:
        """Append one batch of control records."""
        base_offset = self.end_offset
        data = encode_control_records(records, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)
        self._store.append(bytearray(data))
        self.bytes_seen += len(data)
        return OffsetAndEpoch(base_offset + len(records) - 1, epoch)

    def read(self, start: int, end: int) -> Iterator[MetadataBatch]:
        """The batches from offset ``start`` to ``end`` (excluded); :class:`FatalError` if one cannot be decoded."""
        offset = start
        while offset < end:
            data = self._store.read(offset, _READ_BYTES)
            if not data:
                raise FatalError(f"the metadata log ends at offset {offset}, before {end}")
            try:
                for batch in decode_batches(data):
                    if batch.last_offset < offset:
                        continue
                    if batch.base_offset >= end:
                        return
                    self.bytes_seen += batch.size
                    yield batch
                    offset = batch.last_offset + 1
            except WireError as error:
                raise FatalError(f"the metadata log is damaged at or after offset {offset}: {error}") from error

    def begin_flush(self) -> FlushWork | None:
        """The work that makes durable what is appended so far."""
        return self._store.begin_flush()

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Drop what a snapshot holds."""
        self._store.delete_before(offset, now_ms)

    def close(self) -> None:
        """Give the files back."""
        self._store.close()
