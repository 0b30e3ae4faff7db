"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode as E
from kbroker.wire.messages import streams_groups
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.node.node_harness import Client, Node, running_node

GROUP = "g"


def heartbeat(**fields: Any) -> streams_groups.StreamsGroupHeartbeatRequest:
    subtopologies = [
        streams_groups.HeartbeatSubtopology(
            subtopology_id="0", source_topics=["in"], repartition_sink_topics=["middle"]
        ),
        streams_groups.HeartbeatSubtopology(
            subtopology_id="1",
            repartition_source_topics=[streams_groups.TopicInfo(name="middle")],
            state_changelog_topics=[
                streams_groups.TopicInfo(
                    name="log", topic_configs=[streams_groups.KeyValue(key="cleanup.policy", value="compact")]
                )
            ],
        ),
    ]
    values: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "m",
        "rebalance_timeout_ms": 30_000,
        "process_id": "p",
        "topology": streams_groups.HeartbeatTopology(epoch=0, subtopologies=subtopologies),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    return streams_groups.StreamsGroupHeartbeatRequest(**(values | fields))


async def coordinator(node: Node) -> Client:
    """A connection to the node, which has the topic "in" of three partitions, and its ``__consumer_offsets``."""
    await node.create_topic("in", 3)
    client = await node.connect()
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
    return client


@asynccontextmanager
async def coordinating(path: Path, **properties: str) -> AsyncIterator[tuple[Node, Client]]:
    async with running_node(path, **properties) as node:
        yield node, await coordinator(node)


NO_DELAY = {"group.streams.initial.rebalance.delay.ms": "0"}


async def test_internal_topics_are_created_and_tasks_assigned(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **NO_DELAY, **{"group.streams.assignment.interval.ms": "0"}) as (node, client):
        first = await client.ask(heartbeat())
        assert first.error_code == 0
        assert [status.status_code for status in first.status] == [3]
        topics = node.broker.services.metadata.image.topics.by_name
        assert [len(topics[name].partitions) for name in ("middle", "log")] == [3, 3]
        described = await client.ask(streams_groups.StreamsGroupDescribeRequest(group_ids=[GROUP]))
        assert described.groups[0].group_state == "NotReady"
        again = {"member_epoch": first.member_epoch, "topology": None, "rebalance_timeout_ms": -1}
        second = await client.ask(heartbeat(**again))
        assert {tasks.subtopology_id: tasks.partitions for tasks in second.active_tasks} == {
            "0": [0, 1, 2],
            "1": [0, 1, 2],
        }
        request = streams_groups.StreamsGroupDescribeRequest(
            group_ids=[GROUP, "other"], include_topology_description=True
        )
        found, missing = (await client.ask(request)).groups
        assert (found.group_state, found.assignor_name, found.topology_description_status) == ("Stable", "sticky", 1)
        assert [topic.partitions for topic in found.topology.subtopologies[1].state_changelog_topics] == [3]
        assert missing.error_code == E.GROUP_ID_NOT_FOUND


async def test_topics_that_cannot_be_created_are_told(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **NO_DELAY) as (_, client):
        request = heartbeat()
        assert request.topology is not None
        config = request.topology.subtopologies[1].state_changelog_topics[0].topic_configs[0]
        config.value = "nonsense"
        (status,) = (await client.ask(request)).status
        assert status.status_code == 3
        assert "Internal topics are missing: log, middle; Creation failed: log (" in status.status_detail


async def test_a_node_that_does_not_serve_streams_groups_says_so(tmp_path: Path) -> None:
    async with coordinating(tmp_path, **{"group.coordinator.rebalance.protocols": "classic,consumer"}) as (
        _node,
        client,
    ):
        assert (await client.ask(heartbeat())).error_code == E.UNSUPPORTED_VERSION
        answer = await client.ask(streams_groups.StreamsGroupDescribeRequest(group_ids=[GROUP]))
        assert [group.error_code for group in answer.groups] == [E.UNSUPPORTED_VERSION]
