"""Leadership after nodes stop, die or fall silent, and how soon it moves."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN
from kbroker.raft_metadata.image import BrokerImage, PartitionImage
from kbroker.types import random_uuid
from kbroker.wire.messages import configs
from kbroker.wire.messages import nodes as api
from kbroker.wire.messages import reassignments as moves
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.quorum_harness import Quorum, quorum, three_nodes

DEFAULTS = {"broker_session_timeout_ms": "9000", "broker_heartbeat_interval_ms": "2000"}
"""Apache Kafka's: the tests expect results that do not wait for them."""


async def create(cluster: Quorum, topic: str, partitions: int = 3, replicas: int = 3) -> None:
    controller = cluster.leader()
    assert controller is not None
    client = await cluster.controller_client(controller)
    wish = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
    answer = await client.ask(CreateTopicsRequest(topics=[wish], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == 0, answer
    await cluster.topics_everywhere([topic])


def partitions(cluster: Quorum, seen_by: int, topic: str = "t") -> list[PartitionImage]:
    return list(cluster.nodes[seen_by].metadata.image.topics.by_name[topic].partitions.values())


def others(cluster: Quorum, node_id: int) -> list[int]:
    return [other for other in cluster.nodes if other != node_id]


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    start = trio.current_time()
    await work()
    return trio.current_time() - start


async def test_a_broker_that_stops_hands_over_first_and_may_lead_again(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, properties=DEFAULTS) as cluster:
        leaving = others(cluster, await cluster.await_leader())[0]
        witness = others(cluster, leaving)[0]
        await create(cluster, "t")
        assert leaving in {p.leader for p in partitions(cluster, witness)}
        epoch = cluster.nodes[leaving].broker_epoch
        took = await seconds(lambda: cluster.stop(leaving))
        assert took < 1.5, "it does not wait for the others' next heartbeats"

        def seen() -> BrokerImage:
            return cluster.nodes[witness].metadata.image.brokers[leaving]

        await cluster.until(lambda: seen().fenced)  # of which the witness may hear later
        for p in partitions(cluster, witness):
            assert p.leader not in (leaving, -1) and set(p.isr) == {1, 2, 3} - {leaving}
        assert seen().epoch == epoch
        await cluster.start(leaving)
        await cluster.until(lambda: not seen().fenced)
        assert not seen().in_controlled_shutdown and seen().epoch > epoch


async def test_a_broker_without_controlled_shutdown_leads_until_its_session_is_over(tmp_path: Path) -> None:
    """Nobody is told of another leader before, as in Apache Kafka."""
    properties = DEFAULTS | {"broker_session_timeout_ms": "4000", "broker_heartbeat_interval_ms": "500"}
    async with three_nodes(tmp_path, controlled_shutdown_enable="false", properties=properties) as cluster:
        leaving = others(cluster, await cluster.await_leader())[0]
        witness = others(cluster, leaving)[0]
        await create(cluster, "t")
        stopping: list[bool] = []
        cluster.nodes[witness].metadata.subscribe(
            lambda delta, image: stopping.append(image.brokers[leaving].in_controlled_shutdown)
        )

        def moved() -> bool:
            return all(p.leader not in (leaving, -1) for p in partitions(cluster, witness))

        assert not moved()
        await cluster.stop(leaving)
        assert not moved()
        took = await seconds(lambda: cluster.until(moved))
        assert took > 2, "a broker that is killed is missed at once"
        assert stopping and not any(stopping)


@pytest.mark.parametrize("which", ["broker", "controller"])
async def test_a_killed_node_is_fenced_without_waiting_for_its_session(tmp_path: Path, which: str) -> None:
    async with three_nodes(tmp_path, controller_quorum_election_timeout_ms="1000", properties=DEFAULTS) as cluster:
        controller = await cluster.await_leader()
        victim = controller if which == "controller" else others(cluster, controller)[0]
        await create(cluster, "t")
        await cluster.kill(victim)

        def moved() -> bool:
            return all(
                p.leader not in (victim, -1) and victim not in p.isr
                for witness in cluster.nodes
                for p in partitions(cluster, witness)
            )

        took = await seconds(lambda: cluster.until(moved))
        assert took < 4, "far less than the session of 9 s"


async def test_only_a_refusal_shortens_a_session(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, broker_session_timeout_ms="2500") as cluster:
        controller = await cluster.await_leader()
        driver = cluster.nodes[controller].metadata
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            ports = {8: listening.getsockname()[1], 9: closed.getsockname()[1]}
            beaten_at: dict[int, float] = {}
            for broker_id, port in ports.items():
                client = await cluster.controller_client(controller)
                features = [
                    api.Feature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in driver.features().items()
                ]
                request = api.BrokerRegistrationRequest(
                    broker_id=broker_id,
                    cluster_id=driver.cluster_id,
                    incarnation_id=random_uuid(driver.env.rng),
                    listeners=[api.Listener(name="PLAINTEXT", host="127.0.0.1", port=port)],
                    features=features,
                    log_dirs=[random_uuid(driver.env.rng)],
                )
                answer = await client.ask(request, 4)
                assert answer.error_code == 0
                beat = BrokerHeartbeatRequest(
                    broker_id=broker_id, broker_epoch=answer.broker_epoch, current_metadata_offset=1 << 40
                )
                beaten_at[broker_id] = trio.current_time()
                assert not (await client.ask(beat, 1)).is_fenced
                await client.stream.aclose()
            fenced_after: dict[int, float] = {}
            while len(fenced_after) < 2:
                for broker_id in ports:
                    if driver.image.brokers[broker_id].fenced:
                        fenced_after.setdefault(broker_id, trio.current_time() - beaten_at[broker_id])
                await trio.sleep(0.01)
        assert fenced_after[9] < 1.5 < 2 < fenced_after[8]


async def test_a_broker_that_dies_right_after_the_controller_is_missed_too(tmp_path: Path) -> None:
    async with quorum(tmp_path, 4, initial=3, roles_of={4: "broker"}, properties=DEFAULTS) as cluster:
        await cluster.start(1, 2, 3, 4)
        await create(cluster, "t", partitions=6)
        await cluster.kill(await cluster.await_leader())
        await cluster.until(lambda: cluster.leader() is not None)
        await cluster.kill(4)
        witness = await cluster.await_leader()
        driver = cluster.nodes[witness].metadata
        took = await seconds(lambda: cluster.until(lambda: driver.image.brokers[4].fenced))
        assert took < 4


async def test_the_last_nodes_stop_without_waiting_for_those_that_are_gone(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, properties=DEFAULTS) as cluster:
        await create(cluster, "t")
        for node_id in (1, 2, 3):
            assert await seconds(lambda: cluster.stop(node_id)) < 1.5  # noqa: B023
        await cluster.start(1, 2, 3)
        await cluster.until(lambda: all(p.leader >= 0 for p in partitions(cluster, 1)), within=5)


async def test_a_clean_stop_stays_one_when_the_next_start_finds_no_quorum_and_is_stopped(tmp_path: Path) -> None:
    """Else the controller would take the broker for one that may have lost records (KIP-966)."""
    marker = tmp_path / "node3" / CLEAN_SHUTDOWN
    async with three_nodes(tmp_path, properties=DEFAULTS) as cluster:
        await create(cluster, "t")
        epoch = cluster.nodes[3].broker_epoch
        await cluster.stop(1, 2, 3)
        left = marker.read_text()
        assert json.loads(left)["brokerEpoch"] == epoch
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, 3)
            await cluster.until(lambda: not marker.exists())  # its logs are open
            nursery.cancel_scope.cancel()
        assert marker.read_text() == left


async def test_leaders_go_back_to_where_they_belong_and_may_be_asked_to(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, leader_imbalance_check_interval_seconds="1", properties=DEFAULTS) as cluster:
        controller = await cluster.await_leader()
        leaving = others(cluster, controller)[0]
        await create(cluster, "t")
        await cluster.stop(leaving)
        await cluster.until(lambda: any(p.leader != p.preferred_leader for p in partitions(cluster, controller)))
        await cluster.start(leaving)
        await cluster.until(
            lambda: all(
                p.leader == p.preferred_leader and len(p.isr) == 3
                for node in cluster.nodes
                for p in partitions(cluster, node)
            )
        )


async def test_a_topic_that_comes_to_allow_it_is_led_by_whoever_lives(tmp_path: Path) -> None:
    async with quorum(tmp_path, 5, initial=3, roles="controller", roles_of={4: "broker", 5: "broker"}) as cluster:
        await cluster.start(1, 2, 3, 4, 5)
        controller = await cluster.await_leader()
        await create(cluster, "t", partitions=1, replicas=2)
        [p] = partitions(cluster, controller)
        follower, leader = p.replicas[1], p.leader
        await cluster.stop(follower)
        await cluster.kill(leader)
        await cluster.until(lambda: partitions(cluster, controller)[0].leader == -1)
        await cluster.start(follower)
        assert partitions(cluster, controller)[0].leader == -1
        client = await cluster.controller_client(controller)
        change = configs.IncrementalAlterableConfig(
            name="unclean.leader.election.enable", config_operation=0, value="true"
        )
        wish = configs.IncrementalAlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        answer = await client.ask(configs.IncrementalAlterConfigsRequest(resources=[wish]), 1)
        assert answer.responses[0].error_code == 0
        await cluster.until(lambda: partitions(cluster, controller)[0].leader == follower)
        assert partitions(cluster, controller)[0].leader_recovery_state == 1
        await cluster.start(leader)
        await cluster.until(lambda: len(partitions(cluster, controller)[0].isr) == 2)
        assert partitions(cluster, controller)[0].leader_recovery_state == 0


async def test_the_only_controller_is_a_broker_among_others(tmp_path: Path) -> None:
    roles = {2: "broker", 3: "broker"}
    async with quorum(tmp_path, 3, initial=1, roles_of=roles, properties=DEFAULTS) as cluster:
        await cluster.start(1)
        await cluster.start(2, 3)
        await create(cluster, "t")
        await cluster.kill(3)
        await cluster.until(lambda: all(p.leader in (1, 2) and sorted(p.isr) == [1, 2] for p in partitions(cluster, 2)))
        await cluster.start(3)
        await cluster.until(lambda: all(sorted(p.isr) == [1, 2, 3] for p in partitions(cluster, 2)))
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.until(lambda: all(sorted(p.isr) == [1, 2, 3] for p in partitions(cluster, 2)))


async def test_partitions_move_to_other_brokers_and_a_move_is_called_off(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, properties=DEFAULTS) as cluster:
        controller = await cluster.await_leader()
        client = await cluster.controller_client(controller)
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=assignment)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        await cluster.topics_everywhere(["t"])

        async def move(replicas: list[int] | None) -> int:
            wish = moves.ReassignablePartition(partition_index=0, replicas=replicas)
            request = moves.AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[moves.ReassignableTopic(name="t", partitions=[wish])]
            )
            answer = await client.ask(request, 1)
            code: int = answer.responses[0].partitions[0].error_code
            return code

        def now() -> PartitionImage:
            return partitions(cluster, controller)[0]

        assert await move(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await move([3]) == 0
        await cluster.until(lambda: now().replicas == (3,) and now().leader == 3)
        assert await move([3, 1]) == 0
        await cluster.until(lambda: set(now().isr) == {1, 3} and not now().adding_replicas)
        gone = next(node_id for node_id in (2, 1, 3) if node_id != controller)
        away = tuple(node_id for node_id in (1, 2, 3) if node_id != gone)
        assert await move(list(away)) == 0
        await cluster.until(lambda: now().replicas == away and set(now().isr) == set(away))
        await cluster.stop(gone)
        assert await move([away[0], gone]) == 0
        p = now()
        assert (p.adding_replicas, p.removing_replicas, set(p.isr)) == ((gone,), (away[1],), set(away))
        assert await move(None) == 0
        p = now()
        assert (p.adding_replicas, p.removing_replicas, set(p.replicas)) == ((), (), set(away))
        assert await move([away[0], gone]) == 0
        await cluster.start(gone)
        await cluster.until(lambda: now().replicas == (away[0], gone) and set(now().isr) == {away[0], gone})
