"""The batches of the metadata log on this node's disk: a partition log under ``__cluster_metadata-0``."""

from __future__ import annotations

import os
from typing import Protocol

from kbroker.errors import ApiError, FatalError
from kbroker.log import opening
from kbroker.log.disk import Disk
from kbroker.log.log_config import LogConfig
from kbroker.log.partition_log import PartitionLog
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, TopicPartition

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Largest batch of the metadata log (``KafkaRaftClient.MAX_BATCH_SIZE_BYTES``)."""


class FlushWork(Protocol):
    """A flush in two steps: ``run`` may block, in any thread; ``end`` is for the owner's thread."""

    def run(self) -> None: ...

    def end(self) -> None: ...


class RecordStore(Protocol):
    """The batches of the metadata log, as a partition log or a double of it keeps them."""

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

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch not above ``epoch``; (-1, -1) for an epoch above all, or an empty log."""
        ...

    def begin_flush(self) -> FlushWork | None:
        """The work that makes all appended batches durable, while appends may go on; None if they are."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def restart_at(self, offset: int) -> None:
        """Drop all batches and go on at ``offset``; a snapshot holds the records below."""
        ...

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Drop the batches below ``offset``, whose records a snapshot holds."""
        ...

    def close(self) -> None: ...


class PartitionStore:
    """A :class:`RecordStore` on the node's disk."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @classmethod
    def open(
        cls, directory: str, disk: Disk, *, segment_bytes: int, now_ms: int, snapshot_offset: int = 0
    ) -> PartitionStore:
        """Open or create the log in ``directory``. A torn tail is cut: it was not flushed, so no node counts on it.

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
        if not disk.is_dir(directory):
            disk.make_dir(directory)
            # ``quorum-state`` will be in it, and must not be lost with it.
            disk.sync_dir(os.path.dirname(directory))
        try:
            log = opening.open_log(
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
        except ApiError as error:  # INCONSISTENT_TOPIC_ID
            raise FatalError(f"{directory}/partition.metadata is not that of the metadata log") from error
        return cls(log)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return max(self.log.leader_epochs.latest, 0)

    def append(self, data: bytearray) -> None:
        # The time matters only for rolling by age, which this log does not do.
        self.log.append_as_follower(memoryview(data), now_ms=0)

    def read(self, offset: int, max_bytes: int) -> bytes:
        return bytes(self.log.read_bytes(offset, max_bytes, max_offset=self.log.log_end_offset))

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def begin_flush(self) -> FlushWork | None:
        return self.log.begin_flush()

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._remove_expired(0)

    def restart_at(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self._remove_expired(0)

    def delete_before(self, offset: int, now_ms: int) -> None:
        log = self.log
        log.maybe_increment_log_start_offset(offset)
        if log.active_segment.base_offset < offset:
            log.roll(now_ms)
        log.delete_old_segments(now_ms)
        self._remove_expired(now_ms)

    def _remove_expired(self, now_ms: int) -> None:
        for path in self.log.take_expired_files(now_ms)[0]:
            self.log.disk.remove(path)

    def close(self) -> None:
        try:
            self.log.close()
        except OSError:
            self.log.release()  # the next start reads what is not flushed, however this one ends
