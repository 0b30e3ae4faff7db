"""KIP-848 groups through a running node: what is asked over the wire, and what outlives a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.node.node_harness import Client, Node, running_node

GROUP_RESOURCE = 32


def heartbeat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member, or with other fields."""
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return ConsumerGroupHeartbeatRequest(**(values | fields))


async def coordinator(node: Node) -> Client:
    """A connection to the node, which has its ``__consumer_offsets``."""
    client = await node.connect()
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    return client


REFUSED: list[tuple[dict[str, Any], int, ErrorCode]] = [
    ({"group_id": ""}, 1, ErrorCode.INVALID_REQUEST),
    ({"group_id": " "}, 1, ErrorCode.INVALID_REQUEST),
    ({"member_id": ""}, 1, ErrorCode.INVALID_REQUEST),
    ({"member_id": "", "member_epoch": 3}, 0, ErrorCode.INVALID_REQUEST),
    ({"instance_id": ""}, 1, ErrorCode.INVALID_REQUEST),
    ({"rack_id": " "}, 1, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout_ms": -1}, 1, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": None}, 1, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": [HeartbeatTopicPartitions(partitions=[0])]}, 1, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_names": None}, 1, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, 1, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, 1, ErrorCode.INVALID_REQUEST),
    ({"server_assignor": "sticky"}, 1, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"member_epoch": 3}, 1, ErrorCode.GROUP_ID_NOT_FOUND),
    ({"subscribed_topic_names": [], "subscribed_topic_regex": "("}, 1, ErrorCode.INVALID_REGULAR_EXPRESSION),
]


async def test_requests_that_are_refused(node: Node) -> None:
    client = await coordinator(node)
    for fields, version, error in REFUSED:
        response = await client.ask(heartbeat(**fields), version)
        assert (response.error_code, bool(response.error_message)) == (error, True), fields
        assert response.member_id is None and response.assignment is None


async def test_version_0_gives_an_id_to_a_member_without_one(node: Node) -> None:
    await node.create_topic("t")
    client = await coordinator(node)
    response = await client.ask(heartbeat(member_id=""), 0)
    assert response.error_code == 0 and len(response.member_id) == 22


async def test_a_node_that_does_not_serve_the_protocol(tmp_path: Path) -> None:
    properties = {"group_coordinator_rebalance_protocols": "classic"}
    async with running_node(tmp_path, **properties) as node:
        client = await coordinator(node)
        assert (await client.ask(heartbeat())).error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await client.ask(ConsumerGroupDescribeRequest(group_ids=["g"]))
        assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_group_outlives_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await node.create_topic("t", 3)
        client = await coordinator(node)
        response = await client.ask(heartbeat())
        assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5_000)
        assert response.assignment.topic_partitions[0].partitions == [0, 1, 2]
    async with running_node(tmp_path) as node:
        client = await coordinator(node)
        request = ConsumerGroupDescribeRequest(group_ids=["g", "", "x"], include_authorized_operations=True)
        described, unnamed, unknown = (await client.ask(request)).groups
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
        assert described.members[0].assignment.topic_partitions[0].topic_name == "t"
        assert described.members[0].client_host == "/127.0.0.1" and described.authorized_operations > 0
        assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        listed = await client.ask(ListGroupsRequest(states_filter=["STABLE"], types_filter=["Consumer"]))
        assert [group.group_id for group in listed.groups] == ["g"]
        quiet = await client.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2))
        assert (quiet.error_code, quiet.member_epoch, quiet.assignment) == (0, 2, None)


async def test_new_partitions_and_group_configs_take_effect(tmp_path: Path) -> None:
    properties = {"group_consumer_assignment_interval_ms": "0"}
    async with running_node(tmp_path, **properties) as node:
        await node.create_topic("t", 1)
        client = await coordinator(node)
        await client.ask(heartbeat())
        config = IncrementalAlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=0, value="9000")
        resource = IncrementalAlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[config])
        altered = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert altered.responses[0].error_code == 0
        topic = CreatePartitionsTopic(name="t", count=4, assignments=None)
        grown = CreatePartitionsRequest(topics=[topic], timeout_ms=5_000)
        assert (await client.ask(grown)).results[0].error_code == 0
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
        response = await client.ask(beat)
        assert (response.member_epoch, response.heartbeat_interval_ms) == (3, 9_000)
        assert response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
