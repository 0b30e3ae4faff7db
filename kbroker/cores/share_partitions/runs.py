"""The window of a share partition: runs of neighbouring offsets that are in one state, split and joined as needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from kbroker.cores.share_partitions.dead_letters import DeadLetterReason
from kbroker.cores.share_state import DeliveryState, StateBatch

TERMINAL = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)
"""States in which a record is done with."""

_FIRST = attrgetter("first")


@dataclass(slots=True)
class Run:
    """Offsets from ``first`` to ``last``, both inclusive, in one state.

    While ``next_state`` is set, that state is being kept, and the run is in neither: nobody can take it.
    """

    first: int
    last: int
    state: DeliveryState
    delivery_count: int = 0
    member_id: str = ""
    """The holder, of an acquired run."""
    locked_until_ms: int | None = None
    origin: tuple[int, int] = (0, -1)
    """The first and the last of the records that were handed out together at first: an in-flight batch of Kafka's."""
    next_state: DeliveryState | None = None
    change: int = 0
    """The number of the change that is being kept, if there is one: the one of ``next_state``, or a finished one."""
    is_dead_letter: bool = False
    """Whether an archiving run is on its way to the dead-letter queue."""
    reason: DeadLetterReason | None = None
    """The reason for which it goes there; None where that is not known."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether it can be acquired."""
        return self.state is DeliveryState.AVAILABLE and self.next_state is None

    @property
    def is_held(self) -> bool:
        """Whether a member holds it, and nothing is decided about it."""
        return self.state is DeliveryState.ACQUIRED and self.next_state is None

    @property
    def is_done(self) -> bool:
        """Whether nobody gets it again."""
        return self.state in TERMINAL and self.next_state is None

    @property
    def counts_as_done(self) -> bool:
        """Whether it is done, or will be once that is kept: so it is counted for those who look at lags."""
        return (self.state if self.next_state is None else self.next_state) in TERMINAL

    def enter(self, state: DeliveryState) -> None:
        """Put the run into a state; a holder and a lock go with being acquired."""
        self.state, self.next_state, self.is_dead_letter = state, None, False
        if state is not DeliveryState.ACQUIRED:
            self.member_id, self.locked_until_ms = "", None

    def batch(self) -> StateBatch:
        """The run as it is to be kept."""
        state = self.state if self.next_state is None else self.next_state
        return StateBatch(self.first, self.last, state, self.delivery_count)


class Runs:
    """Runs in the order of their offsets, no two of which overlap. Finding one is O(log n), a change O(n) at worst."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def last(self) -> Run | None:
        """The run with the highest offsets."""
        return self._runs[-1] if self._runs else None

    def add(self, run: Run) -> None:
        """Put in a run of offsets that none has."""
        self._runs.insert(self._index_after(run.first), run)

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs of these offsets, split at both ends so that they have no others. Offsets without one are passed."""
        self._split(first)
        self._split(last + 1)
        begin, end = self._index_of(first), self._index_after(last)
        return self._runs[begin:end]

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of these offsets, both ends inclusive, that are in no run."""
        ranges = []
        position = first
        for run in self.covering(first, last):
            if run.first > position:
                ranges.append((position, run.first - 1))
            position = run.last + 1
        if position <= last:
            ranges.append((position, last))
        return ranges

    def covering(self, first: int, last: int) -> list[Run]:
        """The runs that have one of these offsets, whole."""
        return self._runs[self._index_of(first) : self._index_after(last)]

    def drop_below(self, offset: int) -> list[Run]:
        """Take out, and return, the offsets below this one."""
        self._split(offset)
        index = self._index_of(offset)
        dropped, self._runs = self._runs[:index], self._runs[index:]
        return dropped

    def join(self) -> None:
        """Make one run of neighbours that nothing tells apart."""
        joined: list[Run] = []
        for run in self._runs:
            if joined and _alike(joined[-1], run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self._runs = joined

    def _index_after(self, offset: int) -> int:
        """The index of the first run that begins after an offset."""
        return bisect_right(self._runs, offset, key=_FIRST)

    def _index_of(self, offset: int) -> int:
        """The index of the run that has an offset, or of the first one after it."""
        index = self._index_after(offset)
        return index - 1 if index and self._runs[index - 1].last >= offset else index

    def _split(self, offset: int) -> None:
        """Have a run begin at an offset, if one has it."""
        index = self._index_of(offset)
        if index < len(self._runs) and self._runs[index].first < offset:
            run = self._runs[index]
            self._runs.insert(index + 1, replace(run, first=offset))
            run.last = offset - 1


def _alike(before: Run, after: Run) -> bool:
    if before.last + 1 != after.first or before.next_state is not None or after.next_state is not None:
        return False
    if before.state is not after.state or before.delivery_count != after.delivery_count:
        return False
    return before.state in TERMINAL or _told_apart_by(before) == _told_apart_by(after)


def _told_apart_by(run: Run) -> tuple[object, ...]:
    waits_for = run.change if run.state is DeliveryState.ARCHIVING else 0
    return run.member_id, run.locked_until_ms, run.origin, run.is_dead_letter, run.reason, waits_for
