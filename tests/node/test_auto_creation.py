"""Topics that are made when a client first asks for them get the shape that the broker that was asked gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.quorum_harness import Quorum, quorum, three_nodes
from tests.patience import SHORT

PARTITIONS, FACTOR = "num.partitions", "default.replication.factor"


async def ask_for(cluster: Quorum, node_id: int, topic: str) -> tuple[int, int]:
    """Partitions and replication factor of a topic that a client has asked a broker for."""
    client = await cluster.node(node_id).connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    await client.ask(request)
    await client.stream.aclose()
    return await shape(cluster, topic)


async def shape(cluster: Quorum, topic: str) -> tuple[int, int]:
    await cluster.topics_everywhere([topic])
    partitions = cluster.newest_image().topics.by_name[topic].partitions
    return len(partitions), len(partitions[0].replicas)


@pytest.mark.parametrize(
    ("controller", "brokers", "expected"),
    [
        ({}, ({PARTITIONS: "4"}, {PARTITIONS: "5", FACTOR: "2"}), ((4, 1), (5, 2))),
        ({PARTITIONS: "3", FACTOR: "2"}, ({}, {PARTITIONS: "1", FACTOR: "1"}), ((3, 2), (1, 1))),
    ],
)
async def test_the_broker_that_is_asked_decides_and_the_controller_where_it_does_not(
    tmp_path: Path,
    controller: Mapping[str, str],
    brokers: tuple[Mapping[str, str], ...],
    expected: tuple[tuple[int, int], ...],
) -> None:
    properties_of = {number: dict(own) for number, own in enumerate((controller, *brokers), 1)}
    roles_of = {1: "controller", 2: "broker", 3: "broker"}
    async with three_nodes(tmp_path, initial=1, roles_of=roles_of, properties_of=properties_of) as cluster:
        for broker, wanted in zip((2, 3), expected, strict=True):
            assert await ask_for(cluster, broker, f"asked-{broker}") == wanted
        # Who creates a topic without a count gets the controller's, whichever broker is asked.
        client = await cluster.node(3).connect()
        made = CreatableTopic(name="made", num_partitions=-1, replication_factor=-1)
        answer = await client.ask(CreateTopicsRequest(topics=[made], timeout_ms=5000))
        assert answer.topics[0].error_code == 0
        assert await shape(cluster, "made") == (int(controller.get(PARTITIONS, "1")), int(controller.get(FACTOR, "1")))


async def test_three_combined_nodes_decide_each_for_themselves(tmp_path: Path) -> None:
    properties_of = {1: {PARTITIONS: "2"}, 2: {PARTITIONS: "3", FACTOR: "3"}, 3: {FACTOR: "2"}}
    async with three_nodes(tmp_path, properties_of=properties_of) as cluster:
        leader = await cluster.await_leader()
        defaults = properties_of[leader]
        for node_id, own in properties_of.items():
            wanted = tuple(int({**defaults, **own}.get(name, "1")) for name in (PARTITIONS, FACTOR))
            assert await ask_for(cluster, node_id, f"asked-{node_id}") == wanted


@pytest.mark.parametrize("kind", ["metadata", "coordinator"])
async def test_internal_topics_have_the_asked_brokers_shape_as_well(tmp_path: Path, kind: str) -> None:
    own = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": "2",
    }
    roles_of = {1: "controller", 2: "broker", 3: "broker"}
    async with three_nodes(tmp_path, initial=1, roles_of=roles_of, properties_of={3: own}) as cluster:
        client = await cluster.node(3).connect()
        for key_type, topic, wanted in ((0, "__consumer_offsets", (7, 2)), (1, "__transaction_state", (5, 2))):
            if kind == "metadata":
                assert await ask_for(cluster, 3, topic) == wanted
            else:
                await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"]))
                assert await shape(cluster, topic) == wanted


async def test_a_cluster_makes_no_internal_topic_with_fewer_replicas_than_it_is_to_have(tmp_path: Path) -> None:
    """``offsets.topic.replication.factor`` (KIP-115): it would keep too few for good, as some nodes start later."""
    async with quorum(tmp_path, offsets_topic_replication_factor="3", offsets_topic_num_partitions="2") as cluster:
        await cluster.start(1, 2)
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["k"])
        for _ in range(3):
            [answer] = (await client.ask(find)).coordinators
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "__consumer_offsets" not in cluster.newest_image().topics.by_name
        await cluster.start(3)
        with trio.fail_after(SHORT):
            while (await client.ask(find)).coordinators[0].error_code:
                await trio.sleep(0.02)
        assert await shape(cluster, "__consumer_offsets") == (2, 3)


@pytest.mark.parametrize("told", ["3", ""])
async def test_a_node_alone_keeps_to_the_factor_that_it_was_told(
    tmp_path: Path, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's default alone is what a single node need not keep to (KIP-115)."""
    factor = {"offsets.topic.replication.factor": told} if told else {}
    async with quorum(tmp_path, 1, offsets_topic_num_partitions="2", properties=factor) as cluster:
        await cluster.start(1)
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["k"])
        for _ in range(2):
            [answer] = (await client.ask(find)).coordinators
        warnings = [each for each in caplog.messages if "cannot be made" in each]
        assert len(warnings) == bool(told)  # however often it is asked for
        if told:
            assert warnings[0].startswith("__consumer_offsets cannot be made with offsets.topic.replication.factor=3: ")
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "__consumer_offsets" not in cluster.newest_image().topics.by_name
        else:
            assert await shape(cluster, "__consumer_offsets") == (2, 1)
