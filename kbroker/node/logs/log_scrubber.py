"""Verifies the batches of logs in the background, at a bounded rate: damage is found before all copies have some.

One task goes over the log dirs, a round of each once a week, or at once when somebody asks. Pieces of a segment are
read and verified in a thread, which gives way to the event loop; that chooses what comes next.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from kbroker.errors import ErrorCode
from kbroker.log.disk import OsDisk
from kbroker.log.scrubbing import Progress, SegmentCheck, read_progress, write_progress
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.segment_recovery import MAX_OFFSET
from kbroker.types import METADATA_TOPIC, OffsetAndEpoch

if TYPE_CHECKING:
    from kbroker.log.log_dir import LogDir
    from kbroker.log.manager import LogManager
    from kbroker.log.partition_log import PartitionLog
    from kbroker.log.segments.segment import Segment
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

PIECE = 256 * 1024
"""Bytes that are read at once; they stay in the processor's cache until they are verified."""
LEAST = 64 * 1024
LEAST_BATCH = 1024
"""A shorter segment, and a shorter batch, count as so many bytes: they take more processor time than their bytes."""
LOOK_SECONDS = 60.0
"""Between two looks whether a round is due."""
BUSY_CORES = 0.5
"""Processor time of the node, in seconds of a second, above which the scrubber has a tenth of its rate."""


class LogScrubber:
    """``run`` it for as long as the node serves."""

    def __init__(
        self,
        env: Env,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        bytes_per_second: int,
        metadata: MetadataPlane | None = None,
        *,
        round_seconds: float = 7 * 24 * 3600,
        keep_seconds: float = LOOK_SECONDS,
        processor_seconds: Callable[[], float] | None = None,
    ) -> None:
        """``metadata``: their log and its snapshots are verified, too. ``round_seconds``: between the beginnings of two
        rounds over a log dir. ``keep_seconds``: between two times that progress is written down.
        ``processor_seconds``: those that the node has used."""
        self._env = env
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._metadata = metadata
        self.bytes_per_second = bytes_per_second
        self._keep_seconds = keep_seconds
        self._round_ms = int(round_seconds * 1000)
        of_process = time.process_time if isinstance(env.disk, OsDisk) else lambda: 0.0
        self._processor_seconds = processor_seconds if processor_seconds is not None else of_process
        self._processor_before, self._looked_at = self._processor_seconds(), env.now()
        self._wanted: set[str] = set()
        self._under_way: str | None = None
        self._asked = trio.Event()
        self._kept_at = env.now()
        self.progress: dict[str, Progress] = {}
        """By log dir."""
        self.bytes: dict[str, int] = {}
        """Bytes that were read since the node started, by log dir."""

    def begin(self) -> None:
        """Begin a round over every log dir now, but for a round that is under way."""
        self._wanted.update(path for path in self.progress if path != self._under_way)
        self._asked.set()

    async def run(self) -> None:
        """Scrub until cancelled."""
        disk = self._env.disk
        log_dirs = self._log_manager.locked()
        for log_dir in log_dirs:
            self.bytes[log_dir.path] = 0
            self.progress[log_dir.path] = await self._env.run_blocking(read_progress, disk, log_dir.path)
        while True:
            self._asked = trio.Event()
            for log_dir in log_dirs:
                if log_dir.offline is None and (self._is_due(log_dir) or log_dir.path in self._wanted):
                    self._under_way = log_dir.path
                    self._wanted.discard(log_dir.path)
                    await self._round(log_dir)
                    self._under_way = None
            with trio.move_on_after(LOOK_SECONDS):
                await self._asked.wait()

    def _is_due(self, log_dir: LogDir) -> bool:
        progress = self.progress[log_dir.path]
        # A clock that was set back does not put a round off for longer than its time.
        return progress.next is not None or abs(self._env.wall_clock_ms() - progress.began_ms) >= self._round_ms

    async def _round(self, log_dir: LogDir) -> None:
        """A round over a log dir from where it stands, to its end unless the dir fails."""
        path = log_dir.path
        if self.progress[path].next is None:
            total = sum(segment.size for log in self._logs_in(log_dir) for segment in log.segments)
            total += sum(log_dir.disk.size(file) for file in self._snapshots_in(log_dir).values())
            self.progress[path] = self.progress[path]._replace(
                began_ms=self._env.wall_clock_ms(), done=0, total=total, found=0
            )
        for log in sorted(self._logs_in(log_dir), key=lambda log: log.topic_partition):
            topic_partition, next_ = log.topic_partition, self.progress[path].next
            if next_ is None or next_[0] <= topic_partition:
                await self._scrub(log_dir, log, next_[1] if next_ is not None and next_[0] == topic_partition else 0)
            if log_dir.offline is not None:
                return
        await self._scrub_snapshots(log_dir)
        self._under_way = None  # what is asked for from now on, while this one is written down, is another round
        self.progress[path] = self.progress[path]._replace(next=None, ended_ms=self._env.wall_clock_ms())
        if self.progress[path].done:
            await self._keep(path)
            logger.info("%s is scrubbed: %.1f MB were read", path, self.progress[path].done / 1e6)

    def _logs_in(self, log_dir: LogDir) -> list[PartitionLog]:
        logs = self._log_manager.logs_in(log_dir)
        records = self._metadata.records if self._metadata is not None else None
        return [*logs, records] if records is not None and log_dir is self._log_manager.metadata_dir else logs

    def _snapshots_in(self, log_dir: LogDir) -> Mapping[OffsetAndEpoch, str]:
        metadata = self._metadata if log_dir is self._log_manager.metadata_dir else None
        return {} if metadata is None else metadata.snapshots.files

    async def _scrub(self, log_dir: LogDir, log: PartitionLog, offset: int) -> None:
        """Verify the segments of a log that hold offsets from ``offset`` on."""
        path = log_dir.path
        is_metadata = log.topic_partition.topic == METADATA_TOPIC
        while log_dir.offline is None and (is_metadata or self._log_manager.log_of(log.topic_partition) is log):
            segments = log.segments
            index = bisect_left([segment.base_offset for segment in segments], offset)
            if index >= len(segments):
                return
            segment = segments[index]
            try:
                if segment.size:
                    await self._verify(log_dir, log, segment)
            except FileNotFoundError:
                pass  # it is not of the log any more
            except OSError as error:
                partition = self._replica_manager.partitions.get(log.topic_partition)
                if partition is not None and segment in log.segments:
                    partition.storage_failed(error)
                    return
            offset = segment.base_offset + 1
            self.progress[path] = self.progress[path]._replace(next=(log.topic_partition, offset))
            if self._env.now() - self._kept_at >= self._keep_seconds:
                await self._keep(path)

    async def _verify(self, log_dir: LogDir, log: PartitionLog, segment: Segment) -> None:
        generation = log.generation
        following = log.segments.index(segment) + 1
        end_offset = log.segments[following].base_offset if following < len(log.segments) else log.log_end_offset
        place = segment.path, segment.size, segment.base_offset, end_offset
        check = await self._env.run_blocking(SegmentCheck, log_dir.disk, *place, bytearray(PIECE))

        def is_there() -> bool:  # or it was cut, replaced or deleted meanwhile
            return log.generation == generation and segment in log.segments

        if await self._has_problem(log_dir, check, is_there):
            found = CorruptSegment(segment.path, check.position, str(check.problem))
            if log.damaged(found).code != ErrorCode.CORRUPT_MESSAGE:  # or all is whole there by now
                self._count_found(log_dir)

    async def _has_problem(self, log_dir: LogDir, check: SegmentCheck, is_there: Callable[[], bool]) -> bool:
        """Verify a file, a step at a time; whether something is wrong while it ``is_there``."""
        path = log_dir.path
        while not check.is_done and is_there():
            before = check.position
            batches = await self._env.run_long(check.step)
            read = check.position - before
            self.bytes[path] += read
            self.progress[path] = self.progress[path]._replace(done=self.progress[path].done + read)
            charge = max(read, LEAST, batches * LEAST_BATCH)
            await trio.sleep(charge / self.bytes_per_second * (10 if self._is_busy() else 1))
        return check.problem is not None and is_there()

    async def _scrub_snapshots(self, log_dir: LogDir) -> None:
        """Verify the snapshots of the metadata log: they are batches as segments are."""
        for snapshot_id, path in self._snapshots_in(log_dir).items():
            assert self._metadata is not None

            def is_there(of: OffsetAndEpoch = snapshot_id) -> bool:
                return of in self._snapshots_in(log_dir)

            with suppress(OSError):  # a newer one has taken its place; or else the node ends when it writes the next
                size = await self._env.run_blocking(log_dir.disk.size, path)
                place = path, max(size, 1), 0, MAX_OFFSET  # an empty one is damaged, too
                check = await self._env.run_blocking(SegmentCheck, log_dir.disk, *place, bytearray(PIECE))
                if await self._has_problem(log_dir, check, is_there):
                    self._count_found(log_dir)
                    await self._metadata.snapshots.replace(
                        snapshot_id, f"at byte {check.position} of {size}: {check.problem}"
                    )

    def _count_found(self, log_dir: LogDir) -> None:
        progress = self.progress[log_dir.path]
        self.progress[log_dir.path] = progress._replace(found=progress.found + 1)

    def _is_busy(self) -> bool:
        """Whether the node has used much processor time since the last call."""
        used, now = self._processor_seconds(), self._env.now()
        seconds, elapsed = used - self._processor_before, now - self._looked_at
        self._processor_before, self._looked_at = used, now
        return seconds > BUSY_CORES * elapsed

    async def _keep(self, path: str) -> None:
        self._kept_at = self._env.now()
        try:
            await self._env.run_blocking(write_progress, self._env.disk, path, self.progress[path])
        except OSError as error:
            logger.warning("how far %s is scrubbed cannot be kept: %s", path, error)
