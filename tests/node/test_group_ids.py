"""Group ids that a node is asked about and does not coordinate, the empty one among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages.classic_groups import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import OffsetDeleteRequest
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.node.node_harness import Client
from tests.node.quorum_harness import three_nodes

OFFSETS = "__consumer_offsets"


async def errors(client: Client, group: str) -> dict[str, int]:
    """Each API's error code for the group."""
    commit = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])
    in_transaction = TxnOffsetCommitRequestTopic(
        name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
    )

    async def ask(request: Any, version: int) -> Any:
        return await client.ask(request, version)

    committed = await ask(OffsetCommitRequest(group_id=group, topics=[commit]), 9)
    fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, member_id="m", member_epoch=3)])
    transactional = TxnOffsetCommitRequest(transactional_id="tx", group_id=group, topics=[in_transaction])
    return {
        "commit": committed.topics[0].partitions[0].error_code,
        "fetch": (await ask(fetched, 9)).groups[0].error_code,
        "delete offsets": (await ask(OffsetDeleteRequest(group_id=group), 0)).error_code,
        "describe": (await ask(DescribeGroupsRequest(groups=[group]), 6)).groups[0].error_code,
        "delete": (await ask(DeleteGroupsRequest(groups_names=[group]), 2)).results[0].error_code,
        "in a transaction": ((await ask(transactional, 3)).topics[0].partitions[0].error_code),
        "join": (await ask(JoinGroupRequest(group_id=group, session_timeout_ms=6000), 9)).error_code,
        "join for too short": (await ask(JoinGroupRequest(group_id=group, session_timeout_ms=1), 9)).error_code,
        "sync": (await ask(SyncGroupRequest(group_id=group), 4)).error_code,
        "heartbeat": (await ask(HeartbeatRequest(group_id=group), 4)).error_code,
    }


WITHOUT_AN_ID = {
    "delete offsets": E.INVALID_GROUP_ID,
    "in a transaction": E.INVALID_GROUP_ID,
    "join": E.INVALID_GROUP_ID,
    "join for too short": E.INVALID_GROUP_ID,
    "sync": E.INVALID_GROUP_ID,
    "heartbeat": E.INVALID_GROUP_ID,
}
"""The APIs that take no empty group id; to the others it is a group as any."""


def elsewhere(group: str) -> dict[str, E]:
    """The error codes of a node that does not coordinate the group."""
    apis = ("commit", "fetch", "describe", "delete")
    every = dict.fromkeys((*apis, *WITHOUT_AN_ID), E.NOT_COORDINATOR) | {
        "join for too short": E.INVALID_SESSION_TIMEOUT
    }
    return every if group else every | WITHOUT_AN_ID


@pytest.mark.parametrize("group", ["", "g"])
async def test_a_node_that_does_not_coordinate_a_group_says_so(tmp_path: Path, group: str) -> None:
    async with three_nodes(tmp_path, offsets_topic_num_partitions="1") as cluster:
        first = await cluster.node(1).connect()
        await cluster.node(1).create_topic("t")
        find = FindCoordinatorRequest(coordinator_keys=[group])
        while (found := (await first.ask(find, 4)).coordinators[0]).error_code:
            pass
        await cluster.topics_everywhere(["t", OFFSETS])
        await cluster.node(found.node_id).groups.until_loaded(group)
        others = [node_id for node_id in cluster.nodes if node_id != found.node_id]
        assert len(others) == 2
        for node_id in others:
            assert await errors(await cluster.node(node_id).connect(), group) == elsewhere(group)
        told = await errors(await cluster.node(found.node_id).connect(), group)
        assert E.NOT_COORDINATOR not in told.values()
        if not group:
            assert {name: told[name] for name in WITHOUT_AN_ID} == WITHOUT_AN_ID
            assert (told["commit"], told["fetch"], told["describe"]) == (E.NONE,) * 3
