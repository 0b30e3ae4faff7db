"""Whichever node is asked, the active controller decides and all come to know: topics, configs, features, leaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.types import Uuid
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kbroker.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.node.quorum_harness import Quorum, three_nodes

_TOPIC = 2


def topic_everywhere(cluster: Quorum, name: str) -> list[Any]:
    """The topic in each node's metadata."""
    return [node.metadata.image.topics.by_name.get(name) for node in cluster.nodes.values()]


@pytest.mark.parametrize("is_controller", [True, False])
async def test_a_change_by_way_of_any_node(tmp_path: Path, is_controller: bool) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        client = await cluster.node(leader if is_controller else leader % 3 + 1).connect()

        made = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=2)])
        )
        assert made.topics[0].error_code == 0
        await cluster.topics_everywhere(["t"])

        grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
        more = await client.ask(CreatePartitionsRequest(topics=[grown]))
        assert more.results[0].error_code == 0
        await cluster.until(lambda: all(len(topic.partitions) == 3 for topic in topic_everywhere(cluster, "t")))

        resource = IncrementalAlterConfigsResource(
            resource_type=_TOPIC,
            resource_name="t",
            configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="12345")],
        )
        altered = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert altered.responses[0].error_code == 0
        await cluster.until(
            lambda: all(
                node.metadata.image.configs.for_topic("t").get("retention.ms") == "12345"
                for node in cluster.nodes.values()
            )
        )

        feature = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[feature]))).error_code == 0
        await cluster.until(
            lambda: all("group.version" not in node.metadata.image.features.levels for node in cluster.nodes.values())
        )

        replicas = topic_everywhere(cluster, "t")[0].partitions[0].replicas
        wanted = [*reversed(replicas)]
        moved = await client.ask(
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=wanted)])
                ]
            )
        )
        assert moved.responses[0].partitions[0].error_code == 0
        assert (await client.ask(ListPartitionReassignmentsRequest(topics=None))).error_code == 0
        await cluster.until(
            lambda: all(list(topic.partitions[0].replicas) == wanted for topic in topic_everywhere(cluster, "t"))
        )
        elected = await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None))
        assert elected.error_code == 0
        await cluster.until(
            lambda: all(topic.partitions[0].leader == wanted[0] for topic in topic_everywhere(cluster, "t"))
        )

        gone = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
        assert gone.responses[0].error_code == 0
        await cluster.until(lambda: topic_everywhere(cluster, "t") == [None] * 3)


async def test_a_change_during_an_election_waits_for_the_next_controller(tmp_path: Path) -> None:
    """NOT_CONTROLLER is not for clients, many of which take it for final."""
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        others = [number for number in (1, 2, 3) if number != leader]
        clients = {number: await cluster.node(number).connect() for number in others}
        topic = CreatableTopic(name="before", num_partitions=1, replication_factor=1)
        made = await clients[others[0]].ask(CreateTopicsRequest(topics=[topic]))
        assert made.topics[0].error_code == 0
        await cluster.topics_everywhere(["before"])
        resource = IncrementalAlterConfigsResource(
            resource_type=_TOPIC,
            resource_name="before",
            configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="12345")],
        )
        codes: list[int] = []

        async def create(number: int) -> None:
            wanted = CreatableTopic(name=f"by-{number}", num_partitions=1, replication_factor=1)
            answer = await clients[number].ask(CreateTopicsRequest(topics=[wanted]))
            codes.append(answer.topics[0].error_code)
            altered = await clients[number].ask(IncrementalAlterConfigsRequest(resources=[resource]))
            codes.append(altered.responses[0].error_code)

        await cluster.kill(leader)
        async with trio.open_nursery() as nursery:
            for number in others:
                nursery.start_soon(create, number)
        assert codes == [0] * 4


async def test_all_that_a_broker_follows_from_another_comes_by_one_connection(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        leader = await cluster.await_leader()
        client = await cluster.node(leader).connect()
        made = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=24, replication_factor=3)])
        )
        topic_id = Uuid(made.topics[0].topic_id)
        await cluster.topics_everywhere(["t"])
        led = {
            node_id: sum(
                partition.leader == node_id
                for partition in cluster.nodes[leader].metadata.image.topics.by_id[topic_id].partitions.values()
            )
            for node_id in cluster.nodes
        }
        assert led == {1: 8, 2: 8, 3: 8}

        def settled() -> bool:
            """Two followers have a session each, with all eight of a leader's partitions."""
            return all(
                (len(node.services.fetch_sessions), node.services.fetch_sessions.partition_count) == (2, 16)
                for node in cluster.nodes.values()
            )

        await cluster.until(settled)
        for node_id, node in cluster.nodes.items():
            fetchers = node.replica_manager.fetchers
            assert fetchers is not None
            assert sorted(fetchers._fetchers) == sorted({1, 2, 3} - {node_id})
            assert all(len(fetcher.followed) == 8 for fetcher in fetchers._fetchers.values())
