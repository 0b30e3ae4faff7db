"""A share partition in memory of the partition's leader: which records each request, lock or write changes (KIP-932).

The states of a record, the table of their transitions and the rules are in `record_transitions`; here is what finds the
records and applies the table. Pure: methods take the time and return data. What the persister must have is a `Write`:
its state goes to the `Persister`, and `finish` gets the outcome. Kafka 4.4's ``SharePartition``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch, AcknowledgeType, decisions
from kbroker.cores.share_partitions.dead_letters import DeadLetterReason, DeadLetters
from kbroker.cores.share_partitions.record_transitions import TRANSITIONS, Event, Holds, LeaderEvent
from kbroker.cores.share_partitions.runs import Run, Runs
from kbroker.cores.share_partitions.settings import SharePartitionSettings
from kbroker.cores.share_state import DeliveryState, SharePartitionState
from kbroker.errors import ApiError, ErrorCode

_S = DeliveryState
_NOT_KEPT = -1
"""In place of a change's number: that of a dead letter could not be kept."""


class Acquired(NamedTuple):
    """Offsets, both inclusive, that a member holds now, and how often they were handed out, this time included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class OffsetRange(NamedTuple):
    """Offsets, both inclusive: of a stored batch, for instance."""

    first_offset: int
    last_offset: int


def without(acquired: Iterable[Acquired], ranges: Sequence[OffsetRange]) -> list[Acquired]:
    """The acquired offsets that are in none of these ranges, which are in order and do not overlap."""
    kept: list[Acquired] = []
    for first, last, count in acquired:
        for begin, end in ranges:
            if begin <= last and end >= first:
                if begin > first:
                    kept.append(Acquired(first, begin - 1, count))
                first = end + 1
        if first <= last:
            kept.append(Acquired(first, last, count))
    return kept


class _Taking:
    """Records on their way to one member."""

    def __init__(self, member_id: str, locked_until_ms: int, limit: int, exact: bool) -> None:
        self.exact = exact
        self.acquired: list[Acquired] = []
        self.count = 0
        self.member_id = member_id
        self.locked_until_ms = locked_until_ms
        self._limit = limit
        self._origin: tuple[int, int] | None = None

    @property
    def remaining(self) -> int:
        return self._limit - self.count

    @property
    def is_full(self) -> bool:
        return self.count >= self._limit

    def is_full_before(self, run: Run) -> bool:
        """Whether there is no room for a run; for the rest of what was handed out together there is, unless `exact`."""
        return self.is_full and (self.exact or run.origin != self._origin)

    def add(self, run: Run) -> None:
        """Count a run that is the member's now."""
        self.acquired.append(Acquired(run.first, run.last, run.delivery_count))
        self.count += len(run)
        self._origin = run.origin


class Write(NamedTuple):
    """A change to be kept: ``state`` goes to the persister, then `SharePartition.finish` gets this back."""

    state: SharePartitionState
    change: int = 0
    """The number of the change, of which some await the outcome and others hold in any case."""


class SharePartition:
    """A share partition, loaded. ``settings`` is asked at each use, as configs change while it runs."""

    def __init__(
        self, loaded: SharePartitionState, start_offset: int, settings: Callable[[], SharePartitionSettings]
    ) -> None:
        """``start_offset`` is that of ``loaded``, or where a group without one starts. `ValueError`: broken state."""
        self._settings = settings
        self._state_epoch = loaded.state_epoch
        self._leader_epoch = loaded.leader_epoch
        self._runs = Runs()
        self._start = start_offset
        position = start_offset
        for first, last, state, count in loaded.batches:
            if first < position or last < first:
                raise ValueError(f"a batch of offsets {first} to {last} cannot follow offset {position - 1}")
            self._runs.add(Run(first, last, _S(state), count, origin=(first, last)))
            position = last + 1
        self._end = position
        self._next_fetch: int | None = None
        self._changes = itertools.count(1)
        self._has_dead_letters = True
        """Whether `take_dead_letters` may find some."""
        self._done_count = sum(len(run) for run in self._runs if run.counts_as_done)
        self._settle()

    # -- what is there -------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is not done with."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The offset after the last one that was ever in delivery."""
        return self._end

    @property
    def delivery_complete_count(self) -> int:
        """Offsets from the start offset on that are done with (KIP-1226)."""
        return self._done_count

    def runs(self) -> Iterable[Run]:
        """The records in delivery, for those who look."""
        return iter(self._runs)

    @property
    def run_count(self) -> int:
        """The ranges of offsets that are in one state."""
        return len(self._runs)

    def next_fetch_offset(self) -> int:
        """The first offset that can be handed out: one that came back, one that nobody has read, or the end."""
        if self._next_fetch is None:
            self._next_fetch = self._first_free()
        return self._next_fetch

    def _first_free(self) -> int:
        position = self._start
        for run in self._runs:
            if run.first > position:
                return position
            if run.is_available:
                return run.first
            position = run.last + 1
        return self._end

    def can_acquire(self) -> bool:
        """Whether a fetch can bring anything: too many records in delivery hold up new ones alone."""
        return self.next_fetch_offset() != self._end or self._end - self._start < self._settings().max_record_locks

    def next_deadline(self, now_ms: int = -1) -> int | None:
        """The time at which the next lock ends, in ms; None without locks.

        Locks that were over by ``now_ms`` are those of records whose end is being kept: `finish` sees to them.
        """
        ends = (run.locked_until_ms for run in self._runs if run.locked_until_ms is not None)
        return min((end for end in ends if end > now_ms), default=None)

    # -- acquire -------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        batches: Sequence[OffsetRange],
        *,
        fetch_offset: int,
        max_records: int,
        batch_size: int,
        exact: bool,
        now_ms: int,
    ) -> list[Acquired]:
        """Hand out of these stored batches, read from ``fetch_offset`` on, what nobody holds.

        Stored batches go out whole, and so does what is left of records that were handed out together before:
        ``max_records`` may be exceeded by a part of them, unless ``exact`` says otherwise (share.acquire.mode). Ranges
        of new records are about as long as ``batch_size``. Records that came back often are handed out in small pieces,
        so that a bad one does not spoil its neighbours.
        """
        if not batches or batches[-1].last_offset < self._start or max_records <= 0:
            return []
        self._archive_missing(max(fetch_offset, self._start), batches[0].first_offset)
        last = batches[-1].last_offset
        limit = min(max_records, self._settings().max_record_locks - (self._end - self._start))
        if limit <= 0:
            # The window is full; what came back within it is handed out nevertheless.
            last = min(last, self._end - 1)
            limit = min(max_records, self._end - fetch_offset)
        taking = _Taking(member_id, now_ms + self._settings().record_lock_duration_ms, limit, exact)
        position = max(batches[0].first_offset, self._start)
        for run in self._runs.covering(position, last):
            after = run.last + 1  # handing out a part of the run makes it shorter
            if run.first > position:
                self._take_new(taking, batches, position, run.first - 1, batch_size)
            if taking.is_full_before(run):
                break
            if run.is_available and self._take_again(taking, run, max(position, run.first), min(run.last, last)):
                break
            position = after
        else:
            if position <= last:
                self._take_new(taking, batches, position, last, batch_size)
        self._settle()
        return taking.acquired

    def _archive_missing(self, first: int, end: int) -> None:
        """Archive what a log that was read from ``first`` on does not have before ``end``: compaction took it."""
        if first >= end:
            return
        for gap in self._runs.missing(first, end - 1):
            self._runs.add(Run(*gap, _S.AVAILABLE))
        for run in self._runs.cut(first, end - 1):
            if run.is_available:
                self._apply(run, LeaderEvent.COMPACTED)
        self._end = max(self._end, end)

    def _take_new(
        self, taking: _Taking, batches: Sequence[OffsetRange], first: int, last: int, batch_size: int
    ) -> None:
        """Hand out offsets that are in no run."""
        if taking.is_full:
            return
        if taking.remaining < last - first + 1:
            wanted = first + taking.remaining - 1
            last = wanted if taking.exact else min(last, _end_of_batch(batches, wanted))
        for begin, end in _pieces(batches, first, last, last - first + 1 if taking.exact else batch_size):
            run = Run(begin, end, _S.AVAILABLE, origin=(begin, end))
            self._runs.add(run)
            self._take(taking, run)
        self._end = max(self._end, last + 1)

    def _take_again(self, taking: _Taking, run: Run, first: int, last: int) -> bool:
        """Hand out what came back of a run; whether nothing more is to be handed out with it."""
        most = last - first + 1
        limit = self._settings().delivery_count_limit
        throttled = run.delivery_count >= (threshold := max(2, (limit + 1) // 2))
        if throttled:
            if taking.count:
                return True
            begin, end = run.origin
            most = min(most, max(1, (end - begin + 1) >> (run.delivery_count - threshold + 1)))
            if limit > 2 and run.delivery_count == limit - 1:
                most = 1  # the last attempt of each is its own
        if taking.exact:
            most = min(most, taking.remaining)
        for each in self._runs.cut(first, first + most - 1):
            self._take(taking, each)
        return throttled

    def _take(self, taking: _Taking, run: Run) -> None:
        run.member_id, run.locked_until_ms = taking.member_id, taking.locked_until_ms
        self._apply(run, LeaderEvent.ACQUIRE)
        taking.add(run)

    # -- acknowledge, release, time out --------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Iterable[AcknowledgementBatch], now_ms: int) -> Write | None:
        """Take a member's word for records that it holds; None if there is nothing to keep.

        `ApiError` INVALID_RECORD_STATE for a record that it does not hold, INVALID_REQUEST for offsets or types that
        make no sense. Nothing is changed then. A word about what is below the start offset is neither refused nor kept.
        """
        change = next(self._changes)
        renewed: list[OffsetRange] = []
        try:
            for batch in batches:
                first_known = next(iter(self._runs)).first if self._runs else None
                for first, last, kind in decisions(batch, self._start, first_known, self._end, self._settings):
                    held = self._held_by(member_id, first, last)
                    if kind is AcknowledgeType.RENEW:
                        renewed.append(OffsetRange(first, last))
                    else:
                        for run in held:
                            self._apply(run, kind, change)
        except ApiError:
            for run in self._runs_of(change):
                self._take_back(run)
            self._settle()
            raise
        for run in _held(self._cut(renewed), member_id):
            run.locked_until_ms = now_ms + self._settings().record_lock_duration_ms
            self._apply(run, AcknowledgeType.RENEW)
        return self._write(change)

    def _held_by(self, member_id: str, first: int, last: int) -> list[Run]:
        if self._runs.missing(first, last):
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, "The batch offsets are not acquired.")
        runs = self._runs.cut(first, last)
        for run in runs:
            if not run.is_held:
                raise ApiError(
                    ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
                )
            if run.member_id != member_id:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
        return runs

    def release(self, member_id: str) -> Write | None:
        """Give back all that a member holds: its session has ended."""
        return self._apply_all(_held(self._runs, member_id), AcknowledgeType.RELEASE)

    def expire_locks(self, now_ms: int) -> Write | None:
        """Give back what members have held for too long: rule 3."""
        expired = (run for run in self._runs if run.is_held and _is_over(run, now_ms))
        return self._apply_all(expired, LeaderEvent.LOCK_TIMEOUT)

    def give_back(self, member_id: str, acquired: Iterable[Acquired]) -> None:
        """Take back what a member was to get and has not been sent: that was no delivery."""
        self._apply_all(_held(self._cut(acquired), member_id), LeaderEvent.NOT_SENT)

    def archive(self, ranges: Iterable[OffsetRange], member_id: str) -> Write | None:
        """Finish with records that a member holds and must not see: those of aborted transactions, and markers."""
        return self._apply_all(_held(self._cut(ranges), member_id), LeaderEvent.UNREADABLE)

    def take_dead_letters(self) -> list[DeadLetters]:
        """Records to be put into the dead-letter queue; each is handed out here once, also after a load.

        Those of a change that is being kept come when it is: until then a new leader would hand them out again.
        """
        if not self._has_dead_letters:
            return []
        letters = []
        self._has_dead_letters = False
        for run in self._runs:
            if run.next_state is _S.ARCHIVING or (run.state is _S.ARCHIVING and run.change):
                self._has_dead_letters = True
            elif run.state is _S.ARCHIVING and not run.is_dead_letter:
                run.is_dead_letter = True
                letters.append(DeadLetters(run.first, run.last, run.delivery_count, run.reason or self._reason(run)))
        return letters

    def _reason(self, run: Run) -> DeadLetterReason:
        """The likely reason, for one that was loaded: it is not kept."""
        worn_out = run.delivery_count >= self._settings().delivery_count_limit
        return DeadLetterReason.DELIVERED_TOO_OFTEN if worn_out else DeadLetterReason.REJECTED

    def archive_dead_letters(self, letters: Iterable[DeadLetters]) -> Write | None:
        """Finish with records, whether the dead-letter queue has taken them or not."""
        archiving = (run for run in self._cut(letters) if run.state is _S.ARCHIVING)
        return self._apply_all(archiving, LeaderEvent.LETTER_DONE)

    def on_log_start(self, log_start_offset: int) -> None:
        """Pass over records that the log does not have any more. Locks on them end with their members' word."""
        if log_start_offset <= self._start:
            return
        for run in self._runs.drop_below(log_start_offset):
            if run.counts_as_done:
                self._done_count -= len(run)
        self._start = log_start_offset
        self._end = max(self._end, log_start_offset)
        self._settle()

    def finish(self, write: Write, error: ErrorCode | None, now_ms: int) -> None:
        """Commit a change that is kept, or take it back. A lock that ended in the meantime is over then."""
        for run in self._runs_of(write.change):
            if error is None:
                assert run.next_state is not None
                run.enter(run.next_state)
            else:
                self._take_back(run)
                if _is_over(run, now_ms):
                    self._apply(run, LeaderEvent.LOCK_TIMEOUT, write.change)
        for run in self._runs:
            if run.change == write.change:
                run.change = _NOT_KEPT if error is not None and run.state is _S.ARCHIVING else 0
        self._settle()

    def beginning(self) -> Write:
        """Have the start offset kept of a group that has just begun: another leader would choose a later one."""
        state = SharePartitionState(self._state_epoch, self._leader_epoch, self._start, self._done_count)
        return Write(state, next(self._changes))

    def keep_again(self) -> Write | None:
        """Have dead letters kept whose change was not: nobody may have them before; None without such."""
        change = next(self._changes)
        for run in self._runs:
            if run.change == _NOT_KEPT:
                run.change = change
        return self._write(change)

    # -- changes -------------------------------------------------------------------------------

    def _runs_of(self, change: int) -> list[Run]:
        """The runs that await a change's outcome. They may have been split since it was prepared."""
        return [run for run in self._runs if run.next_state is not None and run.change == change]

    def _apply(self, run: Run, event: Event, change: int = 0) -> None:
        """Apply the transition of an event to a run. ``change`` is the number of what is written, if anything is."""
        transition = TRANSITIONS.get((run.state, event))
        if transition is None or run.next_state is not None:
            raise AssertionError(f"offsets {run.first} to {run.last} are {run.state.name}: no {event.name}")
        state = transition.state(run.delivery_count, self._settings)
        run.delivery_count += transition.deliveries
        if state is _S.ARCHIVING:
            run.reason, self._has_dead_letters = transition.gives_up, True
        if transition.holds is Holds.ONCE_WRITTEN:
            run.next_state = state
        else:
            run.enter(state)
        if transition.holds is not Holds.UNWRITTEN:
            run.change = change
        if run.counts_as_done:
            self._done_count += len(run)
        self._next_fetch = None

    def _apply_all(self, runs: Iterable[Run], event: Event) -> Write | None:
        """Do with runs what the table says."""
        change = next(self._changes)
        for run in runs:
            self._apply(run, event, change)
        write = self._write(change)
        self._settle()
        return write

    def _cut(self, ranges: Iterable[OffsetRange | Acquired | DeadLetters]) -> list[Run]:
        return [run for each in ranges for run in self._runs.cut(each.first_offset, each.last_offset)]

    def _take_back(self, run: Run) -> None:
        if run.counts_as_done:
            self._done_count -= len(run)
        run.next_state, run.change, run.reason = None, 0, None

    def _write(self, change: int) -> Write | None:
        """Returns what the persister must have of a change, if there is any."""
        batches = tuple(run.batch() for run in self._runs if run.change == change)
        state = SharePartitionState(self._state_epoch, self._leader_epoch, self._start, self._done_count, batches)
        return Write(state, change) if batches else None

    def _settle(self) -> None:
        """Pass over records at the start that are done with, and join what nothing tells apart."""
        start = self._start
        for run in self._runs:
            if run.first > start or not run.is_done:
                break
            start = run.last + 1
        if start > self._start:
            self._done_count -= sum(len(run) for run in self._runs.drop_below(start))
            self._start = start
        self._runs.join()
        self._next_fetch = None


def _is_over(run: Run, now_ms: int) -> bool:
    return run.locked_until_ms is not None and run.locked_until_ms <= now_ms


def _held(runs: Iterable[Run], member_id: str) -> Iterator[Run]:
    return (run for run in runs if run.is_held and run.member_id == member_id)


def _end_of_batch(batches: Sequence[OffsetRange], offset: int) -> int:
    """The last offset of the stored batch that has an offset; that offset itself if none has it."""
    for first, last in batches:
        if first <= offset <= last:
            return last
    return offset


def _pieces(batches: Sequence[OffsetRange], first: int, last: int, size: int) -> list[tuple[int, int]]:
    """Ranges of at least ``size`` offsets, but for the last one, that end where stored batches do."""
    found = []
    begin = first
    for batch in batches:
        if begin < batch.first_offset <= last and batch.first_offset - begin >= size:
            found.append((begin, batch.first_offset - 1))
            begin = batch.first_offset
    found.append((begin, last))
    return found
