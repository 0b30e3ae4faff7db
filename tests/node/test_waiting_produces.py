"""A Produce that waits for replication checks first: no event repeats an earlier one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from kbroker.cores.replication.purgatory import Appended
from kbroker.errors import ErrorCode
from kbroker.node.replicas.partition import Partition
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.types import TopicPartition
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, batch, running_node
from tests.node.node_harness import produce_request as produce
from tests.node.placement import followed, move

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def watch(manager: ReplicaManager, *appends: Appended) -> list[dict[tuple[str, int], ErrorCode | None]]:
    """A list that receives the outcome of the wait for these appends."""
    told: list[dict[tuple[str, int], ErrorCode | None]] = []
    manager.watch_produce(appends, told.append, 60_000)
    return told


def up_to(partition: Partition, end_offset: int) -> Appended:
    """An append that ends at this offset, in the partition's present leader epoch."""
    return Appended(partition, partition.state.leader_epoch, end_offset)


def lead_again(manager: ReplicaManager, partition: Partition) -> None:
    """Have the node lead in another epoch, and notify all present waiters."""
    state = partition.state
    epoch, version, log_end_offset = state.leader_epoch, state.partition_epoch, partition.log.log_end_offset
    state.become_follower(leader=7, leader_epoch=epoch + 1, partition_epoch=version + 1, replicas=[7], isr=[7])
    state.become_leader(
        leader_epoch=epoch + 2,
        partition_epoch=version + 2,
        replicas=[manager.node_id],
        isr=[manager.node_id],
        log_end_offset=log_end_offset,
        now_ms=0,
    )
    partition.on_leadership(partition.log)
    manager.purgatory.partition_changed(partition.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@asynccontextmanager
async def node_with_three_records(tmp_path: Path) -> AsyncIterator[tuple[Node, Client]]:
    """A node, and a client that has written them to FIRST; SECOND is empty."""
    async with running_node(tmp_path) as node:
        await node.create_topic("t", 2)
        client = await node.connect()
        await client.ask(produce("t", batch(b"1", b"2", b"3")), 12)
        yield node, client


async def test_who_waits_is_answered_by_what_is_so_already(tmp_path: Path) -> None:
    async with node_with_three_records(tmp_path) as (node, client):
        manager = node.broker.replica_manager
        first, second = manager.partitions[FIRST], manager.partitions[SECOND]
        assert watch(manager, up_to(first, 3)) == [{FIRST: None}]
        assert manager.purgatory.produce_watch_count == 0 and not len(manager.purgatory.expirations)

        told = watch(manager, up_to(first, 4), up_to(second, 0))
        assert told == [] and manager.purgatory.produce_watch_count > 0
        await client.ask(produce("t", batch(b"4")), 12)
        assert told == [{FIRST: None, SECOND: None}]
        assert manager.purgatory.produce_watch_count == 0 and not len(manager.purgatory.expirations)

        told = watch(manager, up_to(first, 5), up_to(first, 1))
        assert told == [], "a batch that was sent again ends before the others"
        await client.ask(produce("t", batch(b"5")), 12)
        assert told == [{FIRST: None}]

        before = up_to(first, 1)
        first.state.leader = 7
        assert watch(manager, before) == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        first.state.leader = manager.node_id
        second.offline = True
        assert watch(manager, up_to(second, 0)) == [{SECOND: ErrorCode.KAFKA_STORAGE_ERROR}]


async def test_what_was_appended_in_an_earlier_epoch_is_not_acknowledged(tmp_path: Path) -> None:
    """A leader in between may have truncated it: other records are replicated at these offsets now."""
    async with node_with_three_records(tmp_path) as (node, _):
        manager = node.broker.replica_manager
        first, second = manager.partitions[FIRST], manager.partitions[SECOND]
        old, unconcerned = up_to(first, 2), up_to(second, 5)
        lead_again(manager, first)
        assert first.state.is_leader and first.state.high_watermark == 3
        assert watch(manager, old) == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        assert watch(manager, up_to(first, 2)) == [{FIRST: None}]
        # Both get the worse of the two outcomes, whichever ends later.
        assert watch(manager, old, up_to(first, 3)) == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}]

        told = watch(manager, old, unconcerned)
        assert told == [], "the other is waited for"
        manager.purgatory.high_watermark_moved(SECOND, 5, 0)
        assert told == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER, SECOND: None}]
        assert manager.purgatory.produce_watch_count == 0 and not len(manager.purgatory.expirations)


async def test_what_was_appended_to_a_namesake_is_not_acknowledged(tmp_path: Path) -> None:
    """Of the same leader epoch: each topic begins at the same one."""
    async with node_with_three_records(tmp_path) as (node, client):
        manager = node.broker.replica_manager
        old = up_to(manager.partitions[FIRST], 2)
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000))
        await node.create_topic("t", 2)
        await client.ask(produce("t", batch(b"4", b"5", b"6")), 12)
        new = up_to(manager.partitions[FIRST], 2)
        assert new.leader_epoch == old.leader_epoch
        assert watch(manager, old) == [{FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        assert watch(manager, new) == [{FIRST: None}]


@pytest.mark.parametrize("what", ["deleted", "moved away"])
async def test_a_produce_whose_partition_goes_is_told_whether_it_is_elsewhere_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Apache Kafka 4.4.0 says the same: a producer looks for the leader, or for the topic."""
    async with followed(tmp_path, monkeypatch, "t", replica_lag_time_max_ms="60000") as placed:
        cluster, controller = placed.cluster, placed.controller
        await cluster.until(lambda: len(placed.partition.state.isr) == 2)
        client = await cluster.node(placed.first).connect()
        await placed.let_lag(partial(client.send, produce("t", batch(b"1"), timeout_ms=60_000), 12))
        if what == "deleted":
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            assert (await controller.ask(gone, 6)).responses[0].error_code == 0
        else:
            await move(controller, "t", placed.third)
        error = 0
        while not error:
            error = (await client.receive())[1].responses[0].partition_responses[0].error_code
        nowhere = what == "deleted"
        assert error == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if nowhere else ErrorCode.NOT_LEADER_OR_FOLLOWER)
