"""Figures of lag: how far groups are behind, in records and in seconds, and who holds up read_committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from kbroker.metrics import families as f
from kbroker.node.metrics.figures import STRIDE
from kbroker.node.metrics.record_times import Wanted

if TYPE_CHECKING:
    from kbroker.metrics.exposition import Sample
    from kbroker.node.coordinators import Coordinators
    from kbroker.node.metrics.figures import Figures
    from kbroker.node.metrics.record_times import RecordTimes
    from kbroker.node.partition import Partition
    from kbroker.node.replica_manager import ReplicaManager
    from kbroker.node.transaction_driver import TransactionDriver


class Held(NamedTuple):
    """A led partition with an open transaction: the offset of the earliest one, and its producer's id."""

    partition: Partition
    offset: int
    producer_id: int


async def held(manager: ReplicaManager) -> list[Held]:
    """The led partitions that have an open transaction; others have a turn meanwhile."""
    found = []
    for number, partition in enumerate(list(manager.partitions.values()), 1):
        if not number % STRIDE:
            await trio.lowlevel.checkpoint()
        if not partition.state.is_leader or not partition.has_log or partition.offline:
            continue
        producers = partition.log.producers
        offset, producer = producers.first_undecided_offset, producers.first_undecided_producer
        if offset is not None and producer is not None:
            found.append(Held(partition, offset, producer))
    return found


def wanted(coordinators: Coordinators, manager: ReplicaManager, held: Sequence[Held]) -> Iterator[Wanted]:
    """The places of logs whose timestamps the figures need."""
    for _, _, partition, offset in _commits(coordinators, manager):
        if offset < partition.high_watermark:
            yield Wanted(partition, _oldest_left(partition, offset))
    for partition, offset, _ in held:
        yield Wanted(partition, offset)


def figures(coordinators: Coordinators, manager: ReplicaManager, times: RecordTimes, held: Sequence[Held]) -> Figures:
    """Lags of the groups that this broker coordinates, and open transactions of the partitions that it leads."""

    def lags() -> Iterator[Sample]:
        for group, index, partition, offset in _commits(coordinators, manager):
            topic = partition.topic_partition.topic
            yield (group, topic, index), max(0, partition.high_watermark - offset)

    def ages() -> Iterator[Sample]:
        for group, index, partition, offset in _commits(coordinators, manager):
            behind = offset < partition.high_watermark
            age = times.age_seconds(partition, _oldest_left(partition, offset)) if behind else 0
            if age is not None:
                yield (group, partition.topic_partition.topic, index), age

    yield f.GROUP_LAG, lags()
    yield f.GROUP_LAG_SECONDS, ages()
    ids = _transactional_ids(coordinators.transactions) if held else {}
    yield (
        f.LAST_STABLE_OFFSET_HELD,
        [
            ((*_names(partition), str(producer), ids.get(producer, "")), age)
            for partition, offset, producer in held
            if (age := times.age_seconds(partition, offset)) is not None
        ],
    )


def _oldest_left(partition: Partition, offset: int) -> int:
    """The place of the oldest record from ``offset`` on: others may be deleted, whoever has read them."""
    return max(offset, partition.log.log_start_offset)


def _names(partition: Partition) -> tuple[str, str]:
    topic, index = partition.topic_partition
    return topic, str(index)


def _commits(coordinators: Coordinators, manager: ReplicaManager) -> Iterator[tuple[str, str, Partition, int]]:
    """Group, index, partition and committed offset, where this broker has a replica that works."""
    for core in coordinators.groups.loaded_cores():
        for group, topic, index, offset in core.admin.committed_offsets():
            partition = manager.partitions.get((topic, index))
            if partition is not None and partition.has_log and not partition.offline:
                yield group, str(index), partition, offset


def _transactional_ids(transactions: TransactionDriver) -> dict[int, str]:
    """By producer id, of the transactions that this broker coordinates."""
    return {
        transaction.producer_id: transactional_id
        for core in transactions.loaded_cores()
        for transactional_id, transaction in core.transactions.items()
    }
