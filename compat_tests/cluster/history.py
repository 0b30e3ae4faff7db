"""The checker: what clients wrote and read, and whether a log that keeps its promises could have shown it.

Values name themselves: ``writer:partition:number``, so that every place at which one is seen can be judged. A writer
numbers what it sends to each partition from 0 on. It is given plain observations and returns sentences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Seen(NamedTuple):
    """A record at its place."""

    offset: int
    value: str


class Copy(NamedTuple):
    """Where a value is, and under which epoch its producer sent it there."""

    offset: int
    value: str
    producer_id: int
    producer_epoch: int


class Commit(NamedTuple):
    """A committed offset, and when its member asked for it and had the answer."""

    offset: int
    begun: float
    answered: float


def value_of(writer: str, partition: int, number: int) -> str:
    """The value that names itself; ``writer`` has no colon."""
    return f"{writer}:{partition}:{number}"


def parse(value: str) -> tuple[str, int, int]:
    """(writer, partition, number); ``ValueError`` for what no writer has sent."""
    writer, partition, number = value.split(":")
    return writer, int(partition), int(number)


@dataclass
class History:
    """The history of one topic, as its clients saw it."""

    sent: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """(writer, partition) -> how many values were handed to the client."""
    acknowledged: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Partition -> offset -> value that was acknowledged there."""
    unplaced: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Partition -> values that were acknowledged as there already, the broker no longer knowing where
    (DUPLICATE_SEQUENCE_NUMBER)."""
    failed: set[str] = field(default_factory=set)
    """Values whose writer was told that they failed: they may be there, or not."""
    problems: list[str] = field(default_factory=list)
    """Anomalies that were seen at once."""

    def acknowledge(self, partition: int, offset: int | None, value: str) -> None:
        """A writer was told that the value is at the offset; None: that it is there."""
        if offset is None or offset < 0:
            self.unplaced[partition].add(value)
            return
        other = self.acknowledged[partition].setdefault(offset, value)
        if other != value:
            self.problems.append(f"offset {offset} of partition {partition} acknowledged for {other} and for {value}")

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged.values())) + sum(map(len, self.unplaced.values()))

    @property
    def ends(self) -> dict[int, int]:
        """Partition -> the offset behind the last one that was acknowledged."""
        return {partition: max(known) + 1 for partition, known in self.acknowledged.items() if known}


def doubled(final: Mapping[int, Iterable[Seen]]) -> set[str]:
    """The values that are there more than once."""
    counts = [Counter(record.value for record in seen) for seen in final.values()]
    return {value for counted in counts for value, count in counted.items() if count > 1}


def sent_again(
    history: History, copies: Mapping[int, Iterable[Copy]], own_epochs: Collection[tuple[int, int]]
) -> dict[int, set[int]]:
    """Partition -> offsets of copies that the client itself made useless: it sent their values again as others.

    An idempotent producer that does not get on may give itself a new epoch (``own_epochs``: by producer id) and send
    again under it what was not acknowledged. A broker knows a batch again only within an epoch, so what had been stored
    is stored twice then, with Apache Kafka too. No more than this is allowed: all copies of a value are of one
    producer and each of a later epoch, which the client gave itself, and none but the last was acknowledged.
    """
    useless: dict[int, set[int]] = defaultdict(set)
    for partition, found in copies.items():
        by_value: dict[str, list[Copy]] = defaultdict(list)
        for copy in sorted(found):
            by_value[copy.value].append(copy)
        acknowledged = history.acknowledged.get(partition, {})
        for value, (*earlier, last) in by_value.items():
            epochs = [copy.producer_epoch for copy in (*earlier, last)]
            if (
                {copy.producer_id for copy in earlier} <= {last.producer_id}
                and epochs == sorted(set(epochs))
                and all((last.producer_id, epoch) in own_epochs for epoch in epochs[1:])
                and not any(acknowledged.get(copy.offset) == value for copy in earlier)
                and value not in history.unplaced.get(partition, ())
            ):
                useless[partition] |= {copy.offset for copy in earlier}
    return {partition: offsets for partition, offsets in useless.items() if offsets}


def check(
    history: History,
    final: Mapping[int, Iterable[Seen]],
    *,
    idempotent: bool = True,
    useless: Mapping[int, Collection[int]] | None = None,
) -> list[str]:
    """List the faults of the log as read in the end: records lost, doubled, out of order, changed, never sent.

    ``useless``: the result of `sent_again`.
    """
    problems = list(history.problems)
    for partition in sorted({*history.acknowledged, *history.unplaced, *final}):
        found = list(final.get(partition, ()))
        problems += _check_partition(history, partition, found, idempotent, (useless or {}).get(partition, ()))
    return problems


def _check_partition(
    history: History, partition: int, found: list[Seen], idempotent: bool, useless: Collection[int]
) -> list[str]:
    problems: list[str] = []
    where = f"partition {partition}"
    offsets = [seen.offset for seen in found]
    if offsets != sorted(set(offsets)):
        problems.append(f"{where}: offsets were read out of order or twice")
    found = [seen for seen in found if seen.offset not in useless]
    at = {seen.offset: seen.value for seen in found}
    acknowledged = history.acknowledged.get(partition, {})
    values = Counter(at.values())
    promised = [value for _, value in sorted(acknowledged.items())] + sorted(history.unplaced.get(partition, ()))
    lost = [value for value in promised if value not in values]
    if lost:
        problems.append(f"{where}: LOST {len(lost)} acknowledged values, such as {_some(lost)}")
    moved = [
        f"{value} acknowledged at {offset}, where {at.get(offset, 'nothing')} was read"
        for offset, value in sorted(acknowledged.items())
        if value in values and at.get(offset) != value
    ]
    if moved:
        problems.append(f"{where}: {len(moved)} values are not where they were acknowledged: {_some(moved)}")
    twice = [value for value, count in values.items() if count > 1]
    if twice and idempotent:
        problems.append(f"{where}: DUPLICATES of {len(twice)} values, such as {_some(twice)}")
    last: dict[str, tuple[int, str]] = {}
    strange, disordered = [], []
    for seen in found:
        try:
            writer, aimed, number = parse(seen.value)
        except ValueError:
            strange.append(seen.value)
            continue
        if aimed != partition or number >= history.sent.get((writer, partition), 0):
            strange.append(seen.value)
        previous = last.get(writer)
        if idempotent and previous is not None and number < previous[0]:
            disordered.append(f"{seen.value} at {seen.offset} after {previous[1]}")
        last[writer] = number, seen.value
    if strange:
        problems.append(f"{where}: {len(strange)} values that nobody sent there, such as {_some(strange)}")
    if disordered:
        problems.append(f"{where}: OUT OF ORDER {len(disordered)} times: {_some(disordered)}")
    return problems


def check_reader(name: str, seen: Mapping[int, Iterable[Seen]], final: Mapping[int, Iterable[Seen]]) -> list[str]:
    """Check that a reader during the faults saw the records of the final log, in its order."""
    problems = []
    for partition, records in sorted(seen.items()):
        at = {record.offset: record.value for record in final.get(partition, ())}
        wrong = [
            f"{record.value} at {record.offset}, where {at.get(record.offset, 'nothing')} is in the end"
            for record in records
            if at.get(record.offset) != record.value
        ]
        if wrong:
            problems.append(f"{name}, partition {partition}: saw {len(wrong)} other values: {_some(wrong)}")
    return problems


def check_complete(name: str, seen: Mapping[int, Iterable[Seen]], final: Mapping[int, Iterable[Seen]]) -> list[str]:
    """Everything that is there was seen at least once (by a group whose members committed only what they had seen)."""
    problems = []
    for partition, records in sorted(final.items()):
        offsets = {record.offset for record in seen.get(partition, ())}
        missed = [str(record.offset) for record in records if record.offset not in offsets]
        if missed:
            problems.append(f"{name}, partition {partition}: never saw {len(missed)} offsets, such as {_some(missed)}")
    return problems


def check_replicas(replicas: Mapping[str, Mapping[int, Iterable[Seen]]]) -> list[str]:
    """All replicas of a partition hold the same value at the same offset."""
    problems = []
    partitions = sorted({partition for contents in replicas.values() for partition in contents})
    for partition in partitions:
        held = {
            name: {seen.offset: seen.value for seen in contents[partition]}
            for name, contents in sorted(replicas.items())
            if partition in contents
        }
        names = list(held)
        for name in names[1:]:
            first, other = held[names[0]], held[name]
            if first == other:
                continue
            differing = [
                f"offset {offset}: {first.get(offset, 'nothing')} and {other.get(offset, 'nothing')}"
                for offset in sorted({*first, *other})
                if first.get(offset) != other.get(offset)
            ]
            problems.append(
                f"partition {partition}: {names[0]} and {name} differ at {len(differing)} offsets: {_some(differing)}"
            )
    return problems


def check_commits(name: str, commits: Mapping[int, Iterable[Commit]], final: Mapping[int, int]) -> list[str]:
    """Check that no offset that a member committed is below one that was answered before it was asked for.

    Of two that were under way at once a slow member may be told last, though its was the first. So the order of their
    answers says nothing; but if the lower one was taken last, it is what the coordinator has in the end. ``final``:
    partition -> the offset that it has when all members are gone.
    """
    problems = []
    for partition, found in sorted((partition, list(each)) for partition, each in commits.items()):
        promised, kept = max((commit.offset for commit in found), default=-1), final.get(partition, -1)
        if kept < promised:
            problems.append(f"{name}, partition {partition}: {promised} was committed, and {kept} is there in the end")
        answered = sorted(found, key=lambda each: each.answered)
        number, highest = 0, -1
        for commit in sorted(answered, key=lambda each: each.begun):
            while answered[number].answered < commit.begun:
                highest = max(highest, answered[number].offset)
                number += 1
            if commit.offset < highest:
                problems.append(
                    f"{name}, partition {partition}: the committed offset went back {highest} -> {commit.offset}"
                )
    return problems


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:4]) + (" ..." if len(texts) > 4 else "")
