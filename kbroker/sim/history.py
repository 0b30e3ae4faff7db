"""What clients of a simulated cluster were told, and what must hold of it, checked as they are told.

Every value that is produced is another one, so a value that is read tells which append it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kbroker.types import TopicPartition


class Violation(AssertionError):
    """The cluster broke a promise."""


@dataclass(slots=True)
class PartitionHistory:
    """What is known of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """By offset, as read by whoever read it first."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Leader epoch by offset."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Where a value was read."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values that producers were told are stored; where, or -1 if they were only told that it was there before."""
    acknowledged_by: dict[int, int] = field(default_factory=dict)
    """Node that said so when it was asked the first time, by offset. (Who is asked again may answer for another.)"""
    leaders: dict[int, int] = field(default_factory=dict)
    """Node that acknowledged in a leader epoch."""
    order: dict[int, int] = field(default_factory=dict)
    """The highest number of each producer that was read, to see that its order is kept."""
    read_to: int = 0
    """All below was read."""


class History:
    """What producers and consumers saw of all partitions."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.acknowledgements = 0
        self.reads = 0
        self.refusals: dict[str, int] = {}
        """How often producers were told of an error, by its name."""

    def of(self, tp: TopicPartition) -> PartitionHistory:
        """The history of a partition."""
        found = self.partitions.get(tp)
        if found is None:
            found = self.partitions[tp] = PartitionHistory()
        return found

    def acknowledged(
        self, tp: TopicPartition, values: list[bytes], base_offset: int, node: int, *, retried: bool
    ) -> None:
        """A producer was told that its values are stored, the first at ``base_offset`` (-1: it does not know)."""
        known = self.of(tp)
        self.acknowledgements += len(values)
        for delta, value in enumerate(values):
            offset = base_offset + delta if base_offset >= 0 else -1
            known.acknowledged[value] = offset
            if offset < 0:
                continue
            if not retried:
                known.acknowledged_by[offset] = node
            there = known.values.get(offset)
            if there is not None:
                if there != value:
                    raise Violation(f"{tp}: {value!r} acknowledged at {offset}, where {there!r} was read")
                if not retried:
                    self._check_leader(tp, known, offset)

    def read(self, tp: TopicPartition, offset: int, value: bytes, leader_epoch: int) -> None:
        """A consumer was given a record."""
        known = self.of(tp)
        self.reads += 1
        there = known.values.get(offset)
        if there is not None:
            if there != value:
                raise Violation(f"{tp}: the value at {offset} was {there!r} and is now {value!r}")
            if known.epochs[offset] != leader_epoch:
                raise Violation(f"{tp}: the epoch of {offset} was {known.epochs[offset]} and is now {leader_epoch}")
            return
        before = known.offsets.get(value)
        if before is not None:
            raise Violation(f"{tp}: {value!r} is at {before} and at {offset}")
        known.values[offset] = value
        known.offsets[value] = offset
        known.epochs[offset] = leader_epoch
        acknowledged_at = known.acknowledged.get(value, -1)
        if acknowledged_at not in (-1, offset):
            raise Violation(f"{tp}: {value!r} was acknowledged at {acknowledged_at} and is at {offset}")
        if offset in known.acknowledged_by:
            self._check_leader(tp, known, offset)
        if offset - 1 in known.epochs and known.epochs[offset - 1] > leader_epoch:
            raise Violation(f"{tp}: leader epochs go back at {offset}: {known.epochs[offset - 1]}, {leader_epoch}")
        producer, number = parse_value(value)
        if known.order.get(producer, -1) >= number:
            raise Violation(f"{tp}: {value!r} at {offset} comes after number {known.order[producer]} of its producer")
        known.order[producer] = number

    def _check_leader(self, tp: TopicPartition, known: PartitionHistory, offset: int) -> None:
        epoch, node = known.epochs[offset], known.acknowledged_by[offset]
        other = known.leaders.setdefault(epoch, node)
        if other != node:
            raise Violation(f"{tp}: nodes {other} and {node} both acknowledge in epoch {epoch}")

    def refused(self, name: str) -> None:
        """A producer was told of an error."""
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def unseen(self) -> list[tuple[TopicPartition, bytes, int]]:
        """What was acknowledged and has not been read: partition, value, offset."""
        return [
            (tp, value, offset)
            for tp, known in self.partitions.items()
            for value, offset in known.acknowledged.items()
            if value not in known.offsets
        ]


def make_value(producer: int, number: int) -> bytes:
    """A value that only one record has; the numbers of a producer grow within each partition."""
    return b"%d:%d" % (producer, number)


def parse_value(value: bytes) -> tuple[int, int]:
    """Producer and number."""
    producer, _, number = value.partition(b":")
    return int(producer), int(number)
