"""A share partition whose partition this node leads: loaded from the persister, and kept in step with it.

The life of one (``SharePartitionState`` of Kafka), which never goes back; what happens to its records is decided by
`cores/share_partitions/record_transitions.py`:

    loading   neither `core` nor `error`: fetches wait until that is over
    loaded    `core`: requests and locks change it, and every `Write` goes to the persister, in order
    failed    `error`: whoever has waited is refused, and the next request has the state loaded anew
    ended     `is_ended`, or the leader epoch is another: nothing is served any more. Another leader has read the state,
              and the persister fences this one; or the group or the topic is gone
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kbroker.cores.share_coordinator.batches import merge
from kbroker.cores.share_partitions.dead_letters import DeadLetters, Source
from kbroker.cores.share_partitions.partition import SharePartition, Write
from kbroker.cores.share_partitions.settings import AutoOffsetReset, ResetTo, ShareGroupSettings
from kbroker.cores.share_state import UNINITIALIZED_START_OFFSET, Persister, SharePartitionKey, SharePartitionState
from kbroker.errors import ApiError, ErrorCode
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    from kbroker.cores.replication.fetch_view import FetchView
    from kbroker.log.segments.timestamp_lookup import TimestampOffset
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.share.dead_letters import DeadLetterQueue
    from kbroker.observe.metrics.share_traffic import SharePartitionTraffic
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

_ENDING_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

_PAUSE_SECONDS = 1.0
"""The time from a write that failed to another attempt to keep dead letters."""


class LedSharePartition:
    """Loads once; writes changes one after the other, those that have gathered meanwhile together."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        *,
        env: Env,
        persister: Persister,
        settings: Callable[[], ShareGroupSettings],
        start_soon: Callable[..., object],
        on_ended: Callable[[LedSharePartition], None],
        dead_letters: DeadLetterQueue,
        traffic: SharePartitionTraffic | None = None,
    ) -> None:
        """``on_ended`` is called when the persister says that another leads, or that the group is gone.

        ``traffic`` has the counts of the metrics, if there are any.
        """
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.state.leader_epoch
        self.core: SharePartition | None = None
        """None while it is being loaded."""
        self.error: ApiError | None = None
        """The reason why it could not be loaded."""
        self.is_ended = False
        """Another one has taken its place, or will."""
        self.is_to_be_forgotten = False
        """The manager waits until it is idle, to forget it if it has no readers then."""
        self.waiting: dict[FetchView, None] = {}
        """Fetches to be woken when something comes back."""
        self.locks_end_ms: int | None = None
        """The time at which the manager looks for locks that are over; None without one."""
        self.traffic = traffic
        self._env = env
        self._persister = persister
        self._settings = settings
        self._start_soon = start_soon
        self._on_ended = on_ended
        self._dead_letters = dead_letters
        self._is_sending = False
        """Whether dead letters are on their way."""
        self._waits_to_keep = False
        """Whether dead letters that could not be kept are about to be written again."""
        self._queue: list[tuple[Write, Later[None]]] = []
        self._is_writing = False
        self._became_idle = trio.Event()

    @property
    def is_current(self) -> bool:
        """Whether this node still leads the partition in the same epoch."""
        state = self.partition.state
        return not self.is_ended and state.is_leader and state.leader_epoch == self.leader_epoch

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or written, dead letters included."""
        is_at_work = self._is_writing or self._is_sending or self._waits_to_keep
        return not is_at_work and (self.core is not None or self.error is not None)

    def now_ms(self) -> int:
        """The time by which locks end."""
        return int(self._env.now() * 1000)

    def wake(self) -> None:
        """Have the fetches that wait look again."""
        for view in list(self.waiting):
            view.complete()

    def end(self) -> None:
        """Serve nobody any more. What is on its way to the persister goes on."""
        self.is_ended = True
        self.wake()

    # --- loading ----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the state, or keep the reason why that failed; then wake whoever waits. Never raises."""
        key = self.key
        try:
            answers = await self._persister.read(key.group_id, {key: self.leader_epoch})
            found = answers[key]
            if isinstance(found, ErrorCode):
                # A coordinator's error in a ShareFetch ends Kafka's Java client; after this one it asks again.
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE) if found in _COORDINATOR_ERRORS else refusal(found)
            start = await self._start_offset(found)
            self.core = SharePartition(found, start, lambda: self._settings().delivery)
            if start != found.start_offset:
                self.keep(self.core.beginning())
        except ApiError as error:
            self.error = error.without_traceback()
        except Exception:
            logger.exception("Loading the share partition %s failed", key)
            self.error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if self.error is not None:
            self._on_ended(self)
        self._send_dead_letters()
        self._became_idle.set()
        self.wake()

    async def _start_offset(self, loaded: SharePartitionState) -> int:
        """The start offset as it is kept, or where the group's setting has its readers start."""
        if loaded.start_offset != UNINITIALIZED_START_OFFSET:
            return loaded.start_offset
        return await self._reset(self._settings().auto_offset_reset)

    async def _reset(self, reset: AutoOffsetReset) -> int:
        log = self.partition.log
        if reset.to is ResetTo.EARLIEST:
            return log.log_start_offset
        if self.partition.high_watermark_lags:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        high_watermark = self.partition.high_watermark
        if reset.to is ResetTo.BY_DURATION:
            steps = log.offset_for_timestamp(self._env.wall_clock_ms() - reset.duration_ms)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    found: TimestampOffset | None = end.value
                    break
                await trio.lowlevel.checkpoint()
            if found is not None and found.offset < high_watermark:
                return found.offset
        return high_watermark

    # --- writing ----------------------------------------------------------------------------------------------

    def keep(self, write: Write | None) -> Later[None]:
        """Have a change kept; the error, as clients see it, if it is not. None: there is nothing to keep."""
        outcome: Later[None] = Later()
        if write is None:
            outcome.set(None)
            return outcome
        self._queue.append((write, outcome))
        if not self._is_writing:
            self._is_writing = True
            self._start_soon(self._write_all)
        return outcome

    async def _write_all(self) -> None:
        """Write what has gathered, until nothing more has. Changes of a record are written in their order."""
        core = self.core
        assert core is not None
        while self._queue:
            written, self._queue = self._queue, []
            code = await self._write([write.state for write, _ in written])
            failure = None if code is ErrorCode.NONE else refusal(code)
            now_ms = self.now_ms()
            for write, _ in written:
                core.finish(write, None if failure is None else failure.code, now_ms)
            for _, outcome in written:
                if failure is None:
                    outcome.set(None)
                else:
                    outcome.fail(failure)
            if failure is not None:
                if failure.code in _ENDING_ERRORS:
                    self._on_ended(self)
                if not self._waits_to_keep and self.is_current:
                    self._waits_to_keep = True
                    self._start_soon(self._keep_again, core)
            self._send_dead_letters()
            self.wake()
        self._is_writing = False
        self._became_idle.set()

    async def _keep_again(self, core: SharePartition) -> None:
        """Retry persisting dead letters after a pause, if this broker still leads the partition."""
        await trio.sleep(_PAUSE_SECONDS * self._env.budgets.retry_pauses)
        self._waits_to_keep = False
        if self.is_current:
            self.keep(core.keep_again())
        self._became_idle.set()

    # --- dead letters -----------------------------------------------------------------------------------------

    def _send_dead_letters(self) -> None:
        """Begin to send what there is; one sender sends all, in the order of their offsets."""
        if self.core is not None and not self._is_sending and self.is_current:
            letters = self.core.take_dead_letters()
            if letters:
                self._is_sending = True
                self._start_soon(self._send_all, self.core, letters)

    async def _send_all(self, core: SharePartition, letters: list[DeadLetters]) -> None:
        """Send dead letters, then archive their records, until there are no more.

        Where another broker leads meanwhile, the rest is its to send: it finds them archiving.
        """
        source = Source(self.key.group_id, self.partition.topic_partition.topic, self.key.partition)
        while letters and self.is_current:
            done, letters = await self._dead_letters.put(source, self.partition, letters, lambda: self.is_current)
            if done and self.is_current:
                self.keep(core.archive_dead_letters(done))
            letters = letters or core.take_dead_letters()
        self._is_sending = False
        self._became_idle.set()

    async def until_idle(self) -> None:
        """Wait until nothing is being read or written."""
        while not self.is_idle:
            if self._became_idle.is_set():
                self._became_idle = trio.Event()
            await self._became_idle.wait()

    async def _write(self, states: list[SharePartitionState]) -> ErrorCode:
        latest = states[-1]
        state = latest._replace(batches=merge(batch for each in states for batch in each.batches))
        try:
            return (await self._persister.write(self.key.group_id, {self.key: state}))[self.key]
        except Exception:
            logger.exception("Writing the state of the share partition %s failed", self.key)
            return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(code: ErrorCode) -> ApiError:
    """The error that a client sees for one of the persister (``SharePartition.fetchPersisterError``)."""
    if code in _COORDINATOR_ERRORS:
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return ApiError(code)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
