"""Figures of lag: how far groups are behind, in records and in seconds, and who holds up read_committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from kbroker.node.metrics.figures import STRIDE, Figures
from kbroker.node.metrics.record_times import LogPosition, RecordTimes
from kbroker.observe.metrics import families as f
from kbroker.observe.metrics.exposition import NOTHING, Sample

if TYPE_CHECKING:
    from kbroker.node.coordinators.coordinators import Coordinators
    from kbroker.node.coordinators.transaction_driver import TransactionDriver
    from kbroker.node.metrics.leader_offsets import LeaderOffsets
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager


class BlockedPartition(NamedTuple):
    """A led partition with an open transaction: the offset of the earliest one, and its producer's id."""

    partition: Partition
    offset: int
    producer_id: int


async def blocked_partitions(manager: ReplicaManager) -> list[BlockedPartition]:
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
            found.append(BlockedPartition(partition, offset, producer))
    return found


def wanted(
    coordinators: Coordinators, manager: ReplicaManager, blocked_partitions: Sequence[BlockedPartition]
) -> Iterator[LogPosition | None]:
    """The places of logs whose timestamps the figures need; None where others are to have a turn."""
    for commit in _commits(coordinators, manager, None):
        if commit is None:
            yield None
        elif commit.partition is not None and commit.offset < commit.partition.high_watermark:
            yield LogPosition(commit.partition, _oldest_left(commit.partition, commit.offset))
    for partition, offset, _ in blocked_partitions:
        yield LogPosition(partition, offset)


def led_elsewhere(coordinators: Coordinators, manager: ReplicaManager) -> Iterator[tuple[str, int] | None]:
    """The partitions whose leaders must tell how far groups are behind; None where others are to have a turn."""
    for commit in _commits(coordinators, manager, None):
        if commit is None:
            yield None
        elif commit.partition is None:
            yield commit.topic, commit.number


def figures(
    coordinators: Coordinators,
    manager: ReplicaManager,
    times: RecordTimes,
    leaders: LeaderOffsets,
    blocked_partitions: Sequence[BlockedPartition],
    ids: Mapping[int, str],
) -> Figures:
    """Lags of the groups that this broker coordinates, and open transactions of the partitions that it leads.

    ``ids`` are transactional ids by producer id.
    """

    def commits() -> Iterator[Commit | None]:
        return _commits(coordinators, manager, leaders)

    yield f.GROUP_LAG, _of_each(commits(), lambda commit: commit.lag)
    yield f.GROUP_LAG_SUM, _sums(commits(), lambda commit: commit.lag)
    yield f.GROUP_OFFSET_SUM, _sums(commits(), lambda commit: commit.offset)

    def age_of(commit: Commit) -> float | None:
        if commit.lag == 0:
            return 0
        if commit.partition is None:  # a leader tells where its log ends, not since when
            return None
        return times.age_seconds(commit.partition, _oldest_left(commit.partition, commit.offset))

    yield f.GROUP_LAG_SECONDS, _of_each(commits(), age_of)
    yield (
        f.LAST_STABLE_OFFSET_HELD,
        [
            ((*_names(partition), str(producer), ids.get(producer, "")), age)
            for partition, offset, producer in blocked_partitions
            if (age := times.age_seconds(partition, offset)) is not None
        ],
    )


class Commit(NamedTuple):
    """An offset that a group has committed."""

    group: str
    topic: str
    number: int
    """Of the partition in its topic."""
    offset: int
    partition: Partition | None
    """None where this broker has no replica that works."""
    lag: int | None
    """The records up to the high watermark; None if that is not known."""


def _of_each(commits: Iterable[Commit | None], value: Callable[[Commit], float | None]) -> Iterator[Sample]:
    """A sample for each commit that has a value."""
    for commit in commits:
        if commit is None:
            yield NOTHING
        elif (number := value(commit)) is not None:
            yield (commit.group, commit.topic, str(commit.number)), number


def _sums(commits: Iterable[Commit | None], value: Callable[[Commit], int | None]) -> Iterator[Sample]:
    """A sample for each group and topic, whose commits follow one another; none where a partition has no value."""
    key: tuple[str, str] | None = None
    total: int | None = 0
    for commit in commits:
        if commit is None:
            yield NOTHING
            continue
        if (commit.group, commit.topic) != key:
            if key is not None and total is not None:
                yield key, total
            key, total = (commit.group, commit.topic), 0
        number = value(commit)
        total = None if total is None or number is None else total + number
    if key is not None and total is not None:
        yield key, total


def _oldest_left(partition: Partition, offset: int) -> int:
    """The place of the oldest record from ``offset`` on: others may be deleted, whoever has read them."""
    return max(offset, partition.log.log_start_offset)


def _names(partition: Partition) -> tuple[str, str]:
    topic, index = partition.topic_partition
    return topic, str(index)


def _commits(
    coordinators: Coordinators, manager: ReplicaManager, leaders: LeaderOffsets | None
) -> Iterator[Commit | None]:
    """All that the groups of this broker have committed; None after every ``STRIDE``.

    ``leaders`` tell the high watermarks of others' partitions.
    """
    number = 0
    for core in coordinators.groups.loaded_cores():
        for group, topic, index, offset in core.admin.committed_offsets():
            number += 1
            if not number % STRIDE:
                yield None
            partition = manager.partitions.get((topic, index))
            if partition is not None and partition.has_log and not partition.offline:
                yield Commit(group, topic, index, offset, partition, max(0, partition.high_watermark - offset))
                continue
            end = None if leaders is None else leaders.high_watermark(topic, index)
            yield Commit(group, topic, index, offset, None, None if end is None else max(0, end - offset))


async def transactional_ids(transactions: TransactionDriver) -> dict[int, str]:
    """By producer id, of the transactions that this broker coordinates; others have a turn meanwhile."""
    found = {}
    number = 0
    for core in transactions.loaded_cores():
        for transactional_id, transaction in list(core.transactions.items()):
            found[transaction.producer_id] = transactional_id
            number += 1
            if not number % STRIDE:
                await trio.lowlevel.checkpoint()
    return found
