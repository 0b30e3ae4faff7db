"""The state of one idempotent or transactional producer in one partition, and of its verification (KIP-890)."""

from __future__ import annotations

from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

NUM_BATCHES_TO_RETAIN = 5
"""Requests that an idempotent client may have in flight."""

_MAX_INT32 = 2**31 - 1


class VerificationGuard:
    """Stands for one question to the transaction coordinator: is the partition in the transaction (KIP-890)?

    Compared by identity: an answer overtaken by the end of its transaction does not fit the next one.
    """

    __slots__ = ()


class VerificationState:
    """A producer that waits for verification, and the lowest sequence it has tried with."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, epoch: int) -> None:
        """A lower sequence must come first when retried, so higher ones are to be refused until then."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class BatchMetadata(NamedTuple):
    """A batch of the few that a log remembers of each producer, to recognise it when it is sent again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset less first offset; the sequence numbers span as much."""
    timestamp: int
    """The batch's latest timestamp, with LogAppendTime its append time."""

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record; numbers wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) & _MAX_INT32

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """The state of one producer (Kafka's ``ProducerStateEntry``)."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[BatchMetadata] = []
        """The oldest first, all of ``producer_epoch``, at most five."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 without a batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The last offset of the last batch; -1 without a batch (markers are no data)."""
        return self.batches[-1].last_offset if self.batches else -1

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        """Remember a batch; one of another epoch replaces all before it."""
        batches = self.batches
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            batches.clear()
        elif len(batches) == NUM_BATCHES_TO_RETAIN:
            del batches[0]
        batches.append(batch)
        self.last_timestamp = batch.timestamp

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The remembered batch with exactly these sequence numbers."""
        if epoch == self.producer_epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(producer_id={self.producer_id}, producer_epoch={self.producer_epoch},"
            f" coordinator_epoch={self.coordinator_epoch}, last_timestamp={self.last_timestamp},"
            f" current_txn_first_offset={self.current_txn_first_offset}, batches={self.batches})"
        )
