"""Compacts logs in the background: finds the dirtiest, has it done elsewhere, and puts the result in its place.

One task for each of ``log.cleaner.threads``. What runs on the event loop is the choice, from facts in memory, and the
renaming of files at the end; everything that reads records is in the hands of ``compact`` (another process on a real
machine).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio

from kbroker.errors import ErrorCode
from kbroker.log.compaction.cleanable import LogToClean, filthiest, log_to_clean, make_job
from kbroker.log.compaction.job import CompactionFailed, CompactionJob, CompactionResult, NoWorker
from kbroker.log.disk import OsDisk
from kbroker.log.full_disk import is_no_room
from kbroker.log.segments.cleaned_segment import discard_cleaned
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.node.logs.compaction_pool import CompactionPool
from kbroker.node.replicas.cautious_clock import CautiousClock
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.manager import LogManager
    from kbroker.log.partition_log import PartitionLog
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition

logger = logging.getLogger(__name__)


class CleanerSettings(NamedTuple):
    """The properties ``log.cleaner.*`` that are not topic defaults."""

    threads: int
    map_bytes: int
    """For each thread."""
    read_bytes: int
    bytes_per_second: float
    """For each thread."""
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """The settings of a broker's properties."""
        threads = max(1, config.log_cleaner_threads)
        return cls(
            threads,
            int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor / threads),
            max(64 * 1024, config.log_cleaner_io_buffer_size // threads // 2),
            config.log_cleaner_io_max_bytes_per_second / threads,
            config.log_cleaner_backoff_ms,
        )


class Compactor(Protocol):
    """Where the rounds are made."""

    def compact(self, job: CompactionJob, bytes_per_second: float) -> Awaitable[CompactionResult]:
        """Make a round (:func:`kbroker.log.compaction.compactor.compact`), and raise what it raises."""

    async def close_idle(self) -> None:
        """There is nothing to do for a while."""


class InlineCompactor:
    """Rounds through ``Env.run_blocking``, on the environment's own disk: for simulations."""

    def __init__(self, env: Env) -> None:
        self._env = env

    async def compact(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        from kbroker.log.compaction.compactor import compact

        return await self._env.run_blocking(compact, job, self._env.disk)

    async def close_idle(self) -> None:
        pass


class LogCleaner:
    """``run`` it for as long as the node serves. ``settings`` is asked before each round."""

    def __init__(
        self,
        env: Env,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        settings: Callable[[], CleanerSettings],
        compactor: Compactor | None = None,
        *,
        no_room_seconds: float = 60.0,
    ) -> None:
        """``no_room_seconds``: for which a log is left alone after a round that the disk had no room for."""
        self._env = env
        self._no_room_seconds = no_room_seconds
        self._no_room_until: dict[TopicPartition, float] = {}
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._settings = settings
        self._compactor: Compactor = (
            compactor
            if compactor is not None
            else CompactionPool()
            if isinstance(env.disk, OsDisk)
            else InlineCompactor(env)
        )
        self._clock = CautiousClock(env)
        self._running = 0
        self.uncleanable: dict[TopicPartition, PartitionLog] = {}
        """Logs that could not be cleaned; they are left alone until the node is started again."""

    async def run(self) -> None:
        """Clean until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    for _ in range(self._settings().threads - self._running):
                        self._running += 1
                        nursery.start_soon(self._run_one)
                    await trio.sleep(max(1.0, self._settings().backoff_ms / 1000))
        finally:
            with trio.CancelScope(shield=True):
                await self._compactor.close_idle()

    async def _run_one(self) -> None:
        while self._running <= self._settings().threads:
            if not await self.clean_filthiest():
                await self._compactor.close_idle()
                await trio.sleep(self._settings().backoff_ms / 1000)
        self._running -= 1

    async def clean_filthiest(self) -> bool:
        """Compact the log that needs it most; False if none needs it."""
        found = await self._choose()
        return found is not None and await self.clean(found)

    async def _choose(self) -> LogToClean | None:
        now_ms = self._clock.now_ms()
        log_of = self._log_manager.log_of
        self.uncleanable = {tp: log for tp, log in self.uncleanable.items() if log_of(tp) is log}
        candidates = []
        for count, partition in enumerate(list(self._replica_manager.partitions.values())):
            if count % 500 == 499:
                await trio.lowlevel.checkpoint()
            if partition.config.compact and partition.has_log and not partition.offline:
                candidate = self._candidate(partition, now_ms)
                if candidate is not None and candidate.is_due:
                    candidates.append(candidate)
        # Others may have begun with one of them meanwhile.
        return filthiest(candidate for candidate in candidates if not candidate.log.segments_held)

    def _candidate(self, partition: Partition, now_ms: int) -> LogToClean | None:
        try:
            log = partition.log
            tp = log.topic_partition
            if log.segments_held or log.has_damaged_bytes or self.uncleanable.get(tp) is log:
                return None
            if self._no_room_until.get(tp, 0.0) > self._env.now():
                return None
            return log_to_clean(
                log,
                self._log_manager.cleaner_offsets.of(tp),
                last_stable_offset=partition.last_stable_offset,
                now_ms=now_ms,
            )
        except OSError as error:
            partition.storage_failed(error)
        return None

    def _give_up(self, log: PartitionLog, error: BaseException) -> None:
        logger.warning("%s cannot be compacted, and is left alone: %s", log.topic_partition, error)
        self.uncleanable[log.topic_partition] = log

    def _is_current(self, log: PartitionLog, generation: int) -> bool:
        if log.generation != generation or self._log_manager.log_of(log.topic_partition) is not log:
            return False
        log_dir = self._log_manager.log_dir_of(log.topic_partition)
        return log_dir is not None and log_dir.offline is None

    async def clean(self, found: LogToClean) -> bool:
        """A round over one log that nobody else is at; false if it could not begin, for no fault of the log's.

        A log that fails in it is left alone from then on, a disk that fails is taken offline.
        """
        log = found.log
        generation = log.generation
        log.segments_held = True
        try:
            await self._clean_log(found, generation)
        except CorruptSegment as error:
            if log.damaged(error).code == ErrorCode.CORRUPT_MESSAGE:
                self._give_up(log, error)
        except NoWorker as error:
            logger.warning("%s is not compacted now: %s", log.topic_partition, error)
            return False
        except CompactionFailed as error:
            if self._is_current(log, generation):
                self._give_up(log, error)
        except OSError as error:
            if not self._is_current(log, generation):
                pass  # deleted, truncated or moved meanwhile
            elif is_no_room(error):
                logger.error("no room to compact %s: %s", log.topic_partition, error)
                log.flush_again(self._env.wall_clock_ms())  # it may have been the flush before the round
                self._no_room_until[log.topic_partition] = self._env.now() + self._no_room_seconds
            else:
                partition = self._replica_manager.partitions.get(log.topic_partition)
                if partition is not None:
                    partition.storage_failed(error)
        finally:
            log.segments_held = False
        return True

    async def _clean_log(self, found: LogToClean, generation: int) -> None:
        log, tp = found.log, found.log.topic_partition
        settings = self._settings()
        began = self._env.now()
        job = make_job(found, now_ms=self._clock.now_ms(), map_bytes=settings.map_bytes, read_bytes=settings.read_bytes)
        before = self._log_manager.cleaner_offsets.before_round(log, found.first_dirty_offset)
        await self._env.run_blocking(before.run)
        before.end()
        result = await self._compactor.compact(job, settings.bytes_per_second)
        for number, segment in enumerate(result.segments):
            now_ms = self._clock.now_ms()
            if not self._is_current(log, generation) or not log.replace_segments(segment, now_ms):
                if self._log_manager.log_of(tp) is log:
                    rest = [late.base_offset for late in result.segments[number:]]
                    await self._env.run_blocking(discard_cleaned, log.disk, job.directory, rest)
                return
            await trio.lowlevel.checkpoint()
        await self._env.run_blocking(log.disk.sync_dir, job.directory)
        if self._is_current(log, generation):
            await self._env.run_blocking(self._log_manager.cleaner_offsets.after_round(log, result.end_offset))
        self._replica_manager.checkpoints.request()  # the files that were replaced are to be removed
        seconds = max(self._env.now() - began, 1e-6)
        logger.info(
            "%s was compacted up to offset %d: %.1f MB became %.1f MB in %.1f s%s",
            tp,
            result.end_offset,
            result.bytes_read / 1e6,
            result.bytes_written / 1e6,
            seconds,
            " (the offset map is full, another round follows)" if result.map_full else "",
        )
