"""The share coordinator of one node: its APIs, its topic, restarts, deleted topics, and old records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.cores.share_state import DeliveryState, SharePartitionKey, SharePartitionState, StateBatch
from kbroker.errors import ErrorCode
from kbroker.raft_metadata.topics import SHARE_GROUP_STATE_TOPIC
from kbroker.runtime.later import Later
from kbroker.types import Uuid
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Node, running_node
from tests.node.share_state_harness import GROUP, errors, find, initialize, read, summary, until_loaded, write
from tests.patience import SHORT, until

FEW = {"share_coordinator_state_topic_num_partitions": "3"}


async def ready(node: Node, partitions: int = 4) -> Uuid:
    """A topic whose share partitions the node coordinates."""
    topic_id = await node.create_topic("t", partitions)
    client = await node.connect()
    await find(client, topic_id)
    await until_loaded(client, topic_id, *range(partitions))
    return topic_id


async def test_states_are_kept_and_survive_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await ready(node)
        client = await node.connect()
        begun = await client.ask(initialize(topic_id, (0, 1, 10), (1, 1, 0), (3, 1, -1)))
        assert [each.error_code for each in errors(begun)] == [0, 0, 0]
        batches = [StateBatch(10, 14, 2, 1), StateBatch(15, 19, 0, 2)]
        written = await client.ask(write(topic_id, 0, batches, start=10, leader_epoch=5, done=5))
        assert [each.error_code for each in errors(written)] == [0]
        topic = node.broker.metadata.image.topics.by_name[SHARE_GROUP_STATE_TOPIC]
        assert len(topic.partitions) == 3
    async with running_node(tmp_path, **FEW) as node:
        client = await node.connect()
        await until_loaded(client, topic_id, 0, 1, 3)
        state = errors(await client.ask(read(topic_id, (0, 6))))[0]
        assert (state.error_code, state.state_epoch, state.start_offset) == (0, 1, 10)
        found = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.state_batches]
        assert found == batches
        refused = errors(await client.ask(write(topic_id, 0, start=10, leader_epoch=5)))[0]
        assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert "older than the epoch on the broker" in refused.error_message
        told = errors(await client.ask(summary(topic_id, 0, 1, 3)))
        assert [(each.start_offset, each.delivery_complete_count) for each in told] == [(10, 5), (0, 0), (-1, -1)]


async def test_one_request_may_name_a_share_partition_twice(tmp_path: Path) -> None:
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await ready(node)
        client = await node.connect()
        await client.ask(initialize(topic_id, (0, 1, 0)))
        first, second = (write(topic_id, 0, [StateBatch(start, start + 1, 2, 1)], start=0, done=2) for start in (0, 2))
        first.topics += second.topics
        assert [each.error_code for each in errors(await client.ask(first))] == [0]
        state = errors(await client.ask(read(topic_id, (0, 0))))[0]
        assert [(each.first_offset, each.last_offset) for each in state.state_batches] == [(0, 3)]


async def test_find_coordinator_reads_the_key_from_its_end(tmp_path: Path) -> None:
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await ready(node)
        client = await node.connect()
        assert await find(client, topic_id, group="a:b") == node.broker.config.node_id
        keys = ["", GROUP, "a:b:c", " :AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"]
        response = await client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6)
        assert {each.error_code for each in response.coordinators} == {ErrorCode.INVALID_REQUEST}
        older = await client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]), 5)
        assert older.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_states_of_a_deleted_topic_are_forgotten(tmp_path: Path) -> None:
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await ready(node)
        client = await node.connect()
        await client.ask(initialize(topic_id, (0, 1, 0), (1, 1, 0)))
        assert await kept(node) == 2
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
        with trio.fail_after(SHORT):
            while await kept(node):
                await trio.sleep(0.01)
        answer = errors(await client.ask(summary(topic_id, 0)))[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def kept(node: Node) -> int:
    """Count the share partitions that have a state."""
    share_groups = node.broker.share_groups
    assert share_groups is not None
    return sum(await share_groups.parts().coordinators.read_all(lambda core: len(core.held)))


async def test_records_that_snapshots_have_replaced_are_deleted(tmp_path: Path) -> None:
    properties = {
        "share_coordinator_state_topic_num_partitions": "1",
        "share_coordinator_snapshot_update_records_per_snapshot": "2",
        "share_coordinator_state_topic_prune_interval_ms": "20",
    }
    async with running_node(tmp_path, **properties) as node:
        topic_id = await ready(node)
        client = await node.connect()
        await client.ask(initialize(topic_id, (0, 1, 0)))
        log = node.broker.replica_manager.get_partition(SHARE_GROUP_STATE_TOPIC, 0).log
        for offset in range(7):  # snapshot, update, update, snapshot, ...
            await client.ask(write(topic_id, 0, [StateBatch(offset, offset, 2, 1)], done=offset + 1))
        await until(lambda: log.log_start_offset >= 6)
    async with running_node(tmp_path, **properties) as node:
        client = await node.connect()
        await until_loaded(client, topic_id, 0)
        state = errors(await client.ask(read(topic_id, (0, 0))))[0]
        assert [(each.first_offset, each.last_offset) for each in state.state_batches] == [(0, 6)]


@pytest.mark.parametrize(
    ("linger_ms", "at_once", "batches"), [(50, [True, False, False, False], 2), (-1, [True] * 4, 4)]
)
async def test_changes_of_states_linger_as_long_as_the_property_says(
    tmp_path: Path, linger_ms: int, at_once: list[bool], batches: int
) -> None:
    """``share.coordinator.append.linger.ms`` (KIP-1224): the first change is written, and those after it together."""
    properties = {
        "share_coordinator_state_topic_num_partitions": "1",
        "share_coordinator_append_linger_ms": str(linger_ms),
    }
    async with running_node(tmp_path, **properties) as node:
        topic_id = await ready(node)
        client = await node.connect()
        await client.ask(initialize(topic_id, *((partition, 1, 0) for partition in range(4))))
        log = node.broker.replica_manager.partitions[SHARE_GROUP_STATE_TOPIC, 0].log
        before = log.log_end_offset
        waiting = [change(node, topic_id, partition, 10) for partition in range(4)]
        assert [each.done for each in waiting] == at_once
        assert [[*(await each).values()] for each in waiting] == [[None]] * 4
        assert log.log_end_offset == before + 4
        data = log.read_bytes(before, 1 << 20, max_offset=log.log_end_offset)
        assert sum(1 for _ in walk_headers(data)) == batches
        told = errors(await client.ask(summary(topic_id, *range(4))))
        assert [each.start_offset for each in told] == [10] * 4


async def test_another_change_of_a_share_partition_sees_the_one_that_is_gathered(tmp_path: Path) -> None:
    """The start offset does not go back, though the change that has moved it is not written yet."""
    properties = {"share_coordinator_state_topic_num_partitions": "1", "share_coordinator_append_linger_ms": "50"}
    async with running_node(tmp_path, **properties) as node:
        topic_id = await ready(node)
        client = await node.connect()
        await client.ask(initialize(topic_id, (0, 1, 0), (1, 1, 0)))
        late = StateBatch(20, 24, DeliveryState.ACKNOWLEDGED, 1)
        waiting = [change(node, topic_id, *each) for each in ((1, 1), (0, 20), (0, 10, late), (1, 2))]
        assert [[*(await each).values()] for each in waiting] == [[None]] * 4
        state, other = errors(await client.ask(read(topic_id, (0, 0), (1, 0))))
        assert (state.start_offset, other.start_offset) == (20, 2)
        assert [(each.first_offset, each.last_offset) for each in state.state_batches] == [(20, 24)]


def change(node: Node, topic_id: Uuid, partition: int, start: int, *batches: StateBatch) -> Later[Any]:
    """A change of a state, which the share coordinator has begun to write, or gathers."""
    share_groups = node.broker.share_groups
    assert share_groups is not None
    key = SharePartitionKey(GROUP, Uuid(topic_id), partition)
    state = SharePartitionState(1, 0, start, 0, batches)
    return share_groups.parts().coordinators.write_each(
        {key: state}, lambda core, key, item, now_ms: core.write(key, item, now_ms)
    )
