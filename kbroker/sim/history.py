"""The answers to clients of a simulated cluster, checked against each other as they arrive.

Every produced value is unique, so a value that is read identifies its append.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from kbroker.sim.world import Violation
from kbroker.types import TopicPartition


class SimTransactionState(Enum):
    """A transaction's state, as far as its producer knows."""

    OPEN = 1
    """Undecided: nobody may see its values."""
    COMMITTING = 2
    """The commit's outcome is unknown: all of its values may be seen, or none."""
    COMMITTED = 3
    """All of its values must be seen."""
    ABORTED = 4
    """None of its values may be seen."""


@dataclass(slots=True)
class SimTransaction:
    """One transaction, and the values written in it."""

    name: str
    state: SimTransactionState = SimTransactionState.OPEN
    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)

    def end(self, state: SimTransactionState) -> None:
        """Note the producer's decision, or the outcome that it has learnt."""
        self.state = state


@dataclass(slots=True)
class PartitionHistory:
    """The history of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    """The value at each offset, as first read."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Leader epoch by offset."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """The offset at which each value was read."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Acknowledged values, and their offsets; -1 if the producer does not know the offset."""
    acknowledged_by: dict[int, int] = field(default_factory=dict)
    """By offset, the node that acknowledged a first attempt. (A retry may be acknowledged by another node.)"""
    leaders: dict[int, int] = field(default_factory=dict)
    """Node that acknowledged in a leader epoch."""
    producer_epochs: dict[int, int] = field(default_factory=dict)
    """By offset, the epoch of the producer that wrote there."""
    sent_again: dict[bytes, set[int]] = field(default_factory=dict)
    """The later producer epochs under which a value was sent again, as if for the first time."""
    order: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each producer, the epoch and number that were read last, to check that its order is kept."""
    read_to: int = 0
    """All offsets below this one were read."""


class History:
    """The history of all partitions: the answers that producers and consumers got."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionHistory] = {}
        self.acknowledgements = 0
        self.reads = 0
        self.twice = 0
        """The number of values that were stored twice, which their producers brought about (`sent_again`)."""
        self.refusals: dict[str, int] = {}
        """The number of errors in answers to producers, by name."""
        self.transactions: list[SimTransaction] = []
        """Those of transactional producers. Whoever reads beside them reads committed records only."""
        self._transaction_of: dict[bytes, SimTransaction] = {}

    def of(self, tp: TopicPartition) -> PartitionHistory:
        """The history of a partition."""
        found = self.partitions.get(tp)
        if found is None:
            found = self.partitions[tp] = PartitionHistory()
        return found

    def acknowledged(
        self, tp: TopicPartition, values: list[bytes], base_offset: int, node: int, *, retried: bool
    ) -> None:
        """Note that values of a producer were acknowledged, the first at ``base_offset`` (-1: it does not know)."""
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
                if known.offsets[value] > offset:
                    raise Violation(f"{tp}: {value!r} acknowledged at {offset}, and is at {known.offsets[value]}, too")
                if not retried:
                    self._check_leader(tp, known, offset)

    def sent_again(self, tp: TopicPartition, values: list[bytes], producer_epoch: int) -> None:
        """Note that a producer sends unacknowledged values again, under an epoch that it has raised by itself.

        No broker can recognise them as duplicates: a stored value may be stored once more, and not oftener.
        """
        known = self.of(tp)
        for value in values:
            if value in known.acknowledged:
                raise Violation(f"{tp}: {value!r} was acknowledged, and is sent again")
            known.sent_again.setdefault(value, set()).add(producer_epoch)

    def begin(self, name: str) -> SimTransaction:
        """Note the begin of a transaction."""
        transaction = SimTransaction(name)
        self.transactions.append(transaction)
        return transaction

    def add(self, transaction: SimTransaction, tp: TopicPartition, value: bytes) -> None:
        """Note a value that is written in the transaction."""
        transaction.values.append((tp, value))
        self._transaction_of[value] = transaction

    def committed(self, transaction: SimTransaction) -> None:
        """Note that the commit was acknowledged, and with it all values of the transaction."""
        transaction.end(SimTransactionState.COMMITTED)
        for tp, value in transaction.values:
            self.acknowledged(tp, [value], -1, -1, retried=True)

    def check_transactions(self) -> None:
        """Check at the end of a run that of each transaction all values were read, or none."""
        for transaction in self.transactions:
            seen = [value in self.of(tp).offsets for tp, value in transaction.values]
            if any(seen) and not all(seen):
                raise Violation(f"{transaction.name}: {sum(seen)} of {len(seen)} values of {transaction} were seen")

    def read(self, tp: TopicPartition, offset: int, value: bytes, leader_epoch: int, producer_epoch: int = -1) -> None:
        """Note a record that a consumer has read, and check it against all earlier answers."""
        known = self.of(tp)
        self.reads += 1
        there = known.values.get(offset)
        if there is not None:
            if there != value:
                raise Violation(f"{tp}: the value at {offset} was {there!r} and is now {value!r}")
            if known.epochs[offset] != leader_epoch:
                raise Violation(f"{tp}: the epoch of {offset} was {known.epochs[offset]} and is now {leader_epoch}")
            return
        producer, number = parse_value(value)
        acknowledged_at = known.acknowledged.get(value, -1)
        again = known.sent_again.get(value, ())
        before = known.offsets.get(value)
        if before is not None:
            is_later = known.producer_epochs[before] < producer_epoch
            if not is_later or producer_epoch not in again or acknowledged_at == before:
                raise Violation(f"{tp}: {value!r} is at {before} and at {offset}")
            self.twice += 1
        known.values[offset] = value
        known.offsets[value] = offset
        known.epochs[offset] = leader_epoch
        known.producer_epochs[offset] = producer_epoch
        if acknowledged_at not in (-1, offset) and not (
            acknowledged_at > offset and any(later > producer_epoch for later in again)
        ):
            raise Violation(f"{tp}: {value!r} was acknowledged at {acknowledged_at} and is at {offset}")
        if offset in known.acknowledged_by:
            self._check_leader(tp, known, offset)
        if offset - 1 in known.epochs and known.epochs[offset - 1] > leader_epoch:
            raise Violation(f"{tp}: leader epochs go back at {offset}: {known.epochs[offset - 1]}, {leader_epoch}")
        transaction = self._transaction_of.get(value)
        if transaction is not None and transaction.state in (SimTransactionState.OPEN, SimTransactionState.ABORTED):
            raise Violation(f"{tp}: {value!r} at {offset} was shown, of a transaction that is {transaction.state.name}")
        last_epoch, last = known.order.get(producer, (-1, -1))
        begins_again = before is not None and producer_epoch > last_epoch
        if last >= number and not begins_again:
            raise Violation(f"{tp}: {value!r} at {offset} comes after number {last} of its producer")
        known.order[producer] = producer_epoch, number

    def _check_leader(self, tp: TopicPartition, known: PartitionHistory, offset: int) -> None:
        epoch, node = known.epochs[offset], known.acknowledged_by[offset]
        other = known.leaders.setdefault(epoch, node)
        if other != node:
            raise Violation(f"{tp}: nodes {other} and {node} both acknowledge in epoch {epoch}")

    def refused(self, name: str) -> None:
        """Count an error in an answer to a producer."""
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def describe(self) -> str:
        """The amounts of all, in a line."""
        ends = Counter(transaction.state.name for transaction in self.transactions)
        return (
            f"{self.acknowledgements} acknowledged, {self.reads} read, {self.twice} stored twice by their producers,"
            f" refused {dict(sorted(self.refusals.items()))},"
            f" transactions {dict(sorted(ends.items()))}"
        )

    def unseen(self) -> list[tuple[TopicPartition, bytes, int]]:
        """Acknowledged values that have not been read: partition, value, offset."""
        return [
            (tp, value, offset)
            for tp, known in self.partitions.items()
            for value, offset in known.acknowledged.items()
            if value not in known.offsets or (offset >= 0 and known.offsets[value] != offset)
        ]


def make_value(producer: int, number: int) -> bytes:
    """A value that only one record has; the numbers of a producer grow within each partition."""
    return b"%d:%d" % (producer, number)


def parse_value(value: bytes) -> tuple[int, int]:
    """Producer and number."""
    producer, _, number = value.partition(b":")
    return int(producer), int(number)
