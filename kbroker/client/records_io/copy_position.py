"""The place at which a copy of records has stopped: another one goes on from there, and nothing is stored twice.

A record has a number, its source: `source_of` a partition and an offset of a topic, or the line of a file, which is
that of partition 0. The partitions of the target are filled at different paces, so the place is not one number: before
``next`` some records are left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Final

from kbroker.client import Client
from kbroker.client.pending_batches import Remainder, Unanswered
from kbroker.client.producer import Producer
from kbroker.client.records_io.items import BadLine, Item
from kbroker.types import uuid_to_str

_PARTITION_SHIFT: Final = 64
_MAX_RECORDS: Final = 10_000_000
"""Records that a place may name one by one: far more than a producer holds."""
_BETWEEN_IDS: Final = "/"
"""Is in none of them."""


def ids_of(client: Client, names: Sequence[str]) -> str:
    """The ids of a copy's topics, the target first; ``ClientError``."""
    ids = {topic.name: uuid_to_str(topic.topic_id) for topic in client.refresh(names)}
    return _BETWEEN_IDS.join(ids[name] for name in names)


def made_anew(names: Sequence[str], before: str, now: str) -> str | None:
    """The first of a copy's topics that is another than it was, by what `ids_of` gave then and now; None if none is."""
    ids = zip_longest(names, before.split(_BETWEEN_IDS), now.split(_BETWEEN_IDS), fillvalue="")
    return next((name or names[0] for name, then, present in ids if then != present), None)


def source_of(partition: int, offset: int) -> int:
    """The number with which a record is sent, so that a refusal tells where it comes from."""
    return partition << _PARTITION_SHIFT | offset


def place_of(source: int) -> tuple[int, int]:
    """Partition and offset of the number of :func:`source_of`."""
    return source >> _PARTITION_SHIFT, source & (1 << _PARTITION_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """``next``: partition -> the first record that was not given to the producer; ``left``: the sources before it."""

    task: str = ""
    """A line that says which copy it is of."""
    topic_ids: str = ""
    """Of the target, and of a topic that is read, by `ids_of`: one that was made anew has nothing of it."""
    stored: int = 0
    """Records of all copies so far."""
    next: Mapping[int, int] = field(default_factory=dict)
    left: frozenset[int] = frozenset()
    rest: Remainder = field(default_factory=Remainder)
    """The producer's; its ``unsent`` records are among those that are left."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Partition -> the offset before which the copy ends."""

    @property
    def may_be_doubled(self) -> int:
        """The number of records that may be stored twice when the copy goes on: those of a producer without an id."""
        return sum(len(each.sources) for each in self.rest.unanswered.values() if each.producer_id < 0)

    @property
    def known_again(self) -> int:
        """The number of records that may have been stored, and that brokers know by their producer then."""
        return sum(len(each.sources) for each in self.rest.unanswered.values() if each.producer_id >= 0)

    def again(self) -> set[int]:
        """The records before ``next`` that are to be given to the producer."""
        return set(self.left).union(*(each.sources for each in self.rest.unanswered.values()))

    def dump(self) -> str:
        """The place as one line of JSON."""
        return json.dumps(
            {
                "task": self.task,
                "topic_id": self.topic_ids,
                "stored": self.stored,
                "next": dict(self.next),
                "ends": dict(self.ends),
                "left": list(_spans(self.left)),
                "unanswered": {
                    partition: [each.producer_id, each.producer_epoch, each.sequence, list(_spans(each.sources))]
                    for partition, each in self.rest.unanswered.items()
                },
            },
            separators=(",", ":"),
        )


def load_copy_position(text: str | bytes, *, most: int = _MAX_RECORDS) -> CopyPosition:
    """The place that was dumped; ``ValueError`` if it is none, or names more than ``most`` records."""
    try:
        told = json.loads(text)
        named: set[int] = set()
        left = frozenset(_sources(told["left"], named, most))
        unanswered = {
            _number(partition, highest=2**31 - 1): _unanswered(each, named, most)
            for partition, each in told["unanswered"].items()
        }
        return CopyPosition(
            str(told["task"]),
            str(told["topic_id"]),
            _number(told["stored"]),
            _numbers(told["next"]),
            left,
            Remainder(unanswered),
            _numbers(told["ends"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ValueError("it is no place at which a copy has stopped") from None


def _spans(sources: Iterable[int]) -> Iterator[list[int]]:
    """Runs of neighbours, as partition, first and last offset."""
    run: list[int] | None = None
    for partition, offset in map(place_of, sorted(sources)):
        if run is not None and run[0] == partition and run[2] + 1 == offset:
            run[2] = offset
            continue
        if run is not None:
            yield run
        run = [partition, offset, offset]
    if run is not None:
        yield run


def _unanswered(told: object, named: set[int], most: int) -> Unanswered:
    producer_id, producer_epoch, sequence, spans = _list(told)
    sources = _sources(spans, named, most)
    if not sources:
        raise ValueError(told)
    return Unanswered(
        sources,
        _number(producer_id, -1),
        _number(producer_epoch, -1, highest=2**15 - 1),
        _number(sequence, -1, highest=2**31 - 1),
    )


def _sources(spans: object, named: set[int], most: int) -> list[int]:
    """The sources of runs, which are added to those that are ``named``; ``ValueError`` for one that is already."""
    found: list[int] = []
    for span in _list(spans):
        partition, first, last = map(_number, _list(span))
        if not 0 <= last - first < most - len(named):
            raise ValueError(span)
        run = [source_of(partition, offset) for offset in range(first, last + 1)]
        if not named.isdisjoint(run):
            raise ValueError(span)
        named.update(run)
        found += run
    return found


def _list(told: object) -> list[object]:
    if not isinstance(told, list):
        raise ValueError(told)
    return told


def _numbers(told: object) -> dict[int, int]:
    if not isinstance(told, dict):
        raise ValueError(told)
    return {_number(partition): _number(offset) for partition, offset in told.items()}


def _number(value: object, lowest: int = 0, *, highest: int = 2**63 - 1) -> int:
    number = int(value) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= highest:
        raise ValueError(value)
    return number


class CopyProgress:
    """The way of a copy so far, from its beginning or from the place where an earlier one has stopped."""

    def __init__(self, begun: CopyPosition | None = None) -> None:
        self._begun = begun
        self._again: set[int] = set() if begun is None else begun.again()
        """Records that an earlier copy has left, and that have not come yet."""
        self._next: dict[int, int] = {} if begun is None else dict(begun.next)

    @property
    def rest(self) -> Remainder | None:
        """The rest of the earlier copy's producer."""
        return None if self._begun is None else self._begun.rest

    @property
    def next(self) -> Mapping[int, int]:
        """Partition -> the first record that was not looked at."""
        return self._next

    @property
    def left(self) -> dict[int, int]:
        """Partition -> the first of the records that an earlier copy has left, and that have not come yet."""
        found: dict[int, int] = {}
        for source in self._again:
            partition, offset = place_of(source)
            found[partition] = min(found.get(partition, offset), offset)
        return found

    @property
    def begun_at(self) -> Mapping[int, int]:
        """Partition -> the first record that is new, after those that an earlier copy has left."""
        return {} if self._begun is None else self._begun.next

    @property
    def missing(self) -> int:
        """The number of records that an earlier copy has left and that have not come."""
        return len(self._again)

    def caught_up(self, producer: Producer, tell: Callable[[str], object]) -> int:
        """Note that all that an earlier copy has left was read, and return how many of its records did not come.

        ``tell`` gets a line about those, and they are not waited for any longer. ``ClientError`` if nothing can be done
        without them.
        """
        producer.finish_unanswered()
        missing = self.missing
        if missing:
            tell(f"{missing:,} records that were left when the copy stopped are not there any more")
            self._again.clear()
        return missing

    def wants(self, source: int) -> bool:
        """Whether a record was not given to a producer yet, or is to be given to one again."""
        partition, offset = place_of(source)
        return offset >= self._next.get(partition, 0) or source in self._again

    def given(self, source: int) -> None:
        """Note that a record that an earlier copy has left is with the producer."""
        self._again.discard(source)

    def passed(self, partition: int, offset: int) -> None:
        """Note that all before an offset was looked at, and is with the producer if it is to be sent."""
        if offset > self._next.get(partition, -1):
            self._next[partition] = offset

    def place(self, producer: Producer, task: str, topic_ids: str, ends: Mapping[int, int]) -> CopyPosition:
        """Where the copy stops now. The producer must not be used any more."""
        rest = producer.remainder()
        unanswered = {source for each in rest.unanswered.values() for source in each.sources}
        stored = sum(each.count for each in producer.stored.values())
        return CopyPosition(
            task,
            topic_ids,
            stored + (0 if self._begun is None else self._begun.stored),
            dict(self._next),
            frozenset(self._again.union(rest.unsent) - unanswered),
            Remainder(rest.unanswered),
            dict(ends),
        )


def remaining(
    items: Iterable[Item | BadLine], course: CopyProgress, caught_up: Callable[[], None]
) -> Iterator[Item | BadLine]:
    """The items of a file that an earlier copy has left, then a call of ``caught_up``, then the items that are new.

    Whoever gets an item gives it to the producer, or tells what is wrong with it.
    """
    items = iter(items)
    first_new = course.begun_at.get(0, 0)
    new: Item | BadLine | None = None
    for item in items:
        if item.line >= first_new:
            new = item
            break
        if not isinstance(item, BadLine) and course.wants(item.line):
            course.given(item.line)
            yield item
    caught_up()
    for item in items if new is None else chain((new,), items):
        course.passed(0, item.line + 1)
        yield item
