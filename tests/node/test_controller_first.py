"""A node whose logs take long to open is a controller meanwhile, and a fenced broker (Kafka's ``BrokerServer``)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import FatalError
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN
from kbroker.log.disk import OsFile
from kbroker.log.manager import LogManager
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.metrics_pages import scrape, value
from tests.node.node_harness import Client, Node, batch, produce_request, run, running_node
from tests.node.quorum_harness import Quorum, quorum
from tests.node.test_log_opening import SEGMENTS, Gate, crash, gated, in_thread, read, write

HELD = f"{2:020d}.log"
"""The file of a log at which its opening is held."""
CONTROLLERS = 2
"""The endpoint type of DescribeCluster by which a controller tells of controllers."""


async def reach(port: int) -> Client:
    """A connection to a port that somebody will listen at."""
    while True:
        try:
            return Client(await trio.open_tcp_stream("127.0.0.1", port))
        except OSError:
            await trio.sleep(0.02)


async def leads(client: Client) -> bool:
    """Whether a controller is the active one."""
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    response = await client.ask(DescribeQuorumRequest(topics=[topic]))
    return not response.error_code and not response.topics[0].partitions[0].error_code


async def create(client: Client, name: str, *replicas: int) -> int:
    """The error of making a topic with one partition by way of a controller."""
    assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assigned])
    return int((await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics[0].error_code)


async def settled(asked: Callable[[], Awaitable[bool]]) -> None:
    while not await asked():
        await trio.sleep(0.02)


@asynccontextmanager
async def two_recover(path: Path, **options: Any) -> AsyncIterator[tuple[Quorum, dict[int, Gate], trio.Nursery]]:
    """Three nodes that were killed, of which 1 and 2 have been started and are held while they verify their logs."""
    async with quorum(path, **options) as cluster, trio.open_nursery() as nursery:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        for number in (1, 2, 3):
            client = await cluster.controller_client(await cluster.await_leader())
            assert await create(client, f"of-{number}", number) == 0
        await cluster.topics_everywhere(["of-1", "of-2", "of-3"])
        for number in (1, 2, 3):
            await holds(cluster, number, f"of-{number}")
            await write(cluster.node(number), f"of-{number}", 0)
        for number in (1, 2, 3):
            await cluster.kill(number)
            crash(path / f"node{number}")
        gates = {}
        for number in (1, 2):
            cluster.envs[number], gates[number] = gated(HELD)
            nursery.start_soon(start, cluster, number)
        try:
            yield cluster, gates, nursery
        finally:
            for gate in gates.values():
                gate.let_go()


async def start(cluster: Quorum, number: int) -> None:
    """Start a node that may be stopped before it serves."""
    try:
        await cluster.start(number)
    except* RuntimeError as ended:
        assert "without calling task_status.started()" in str(ended.exceptions[0])


def partitions_of(cluster: Quorum, number: int) -> Any:
    return cluster.nodes[number].replica_manager.partitions


def leader_of(cluster: Quorum, number: int, topic: str) -> int:
    """The leader of a topic's partition, as a node knows it."""
    return cluster.nodes[number].metadata.image.topics.by_name[topic].partitions[0].leader


async def holds(cluster: Quorum, number: int, topic: str) -> None:
    """Wait until a node has a replica of a topic."""
    await cluster.until(lambda: (topic, 0) in partitions_of(cluster, number))


SMALL = {"log.segment.bytes": str(1 << 20)}


async def test_two_that_verify_their_logs_let_the_third_serve(tmp_path: Path) -> None:
    async with two_recover(tmp_path, properties=SMALL) as (cluster, gates, _):
        asked = {number: await reach(cluster.ports[number - 1]) for number in (1, 2)}

        async def led() -> bool:
            return await leads(asked[1]) or await leads(asked[2])

        await settled(led)
        await cluster.start(3)
        node = cluster.nodes[3]
        brokers = node.metadata.image.brokers
        assert brokers.keys() == {1, 2, 3}
        await cluster.until(lambda: {each.id for each in node.metadata.image.brokers.values() if each.fenced} == {1, 2})
        # What they led before is led by nobody, and what the third has is led by it.
        await cluster.until(lambda: [leader_of(cluster, 3, f"of-{number}") for number in (1, 2, 3)] == [-1, -1, 3])
        await write_once(cluster.node(3), "of-3")
        asked[3] = await cluster.controller_client(3)
        [active] = [client for client in asked.values() if await leads(client)]
        assert await create(active, "new", 3) == 0
        await node.metadata.wait_for_image(lambda image: "new" in image.topics.by_name)
        await holds(cluster, 3, "new")
        await write_once(cluster.node(3), "new")
        for number in (1, 2):
            await cluster.until(gates[number].reached.is_set)
            gates[number].let_go()
        await cluster.until(lambda: cluster.nodes.keys() == {1, 2, 3})
        await cluster.until(lambda: not any(each.fenced for each in cluster.newest_image().brokers.values()))
        for number in (1, 2):
            assert await read(cluster.node(number), f"of-{number}", 0) == [b"%d" % each for each in range(SEGMENTS)]


async def write_once(node: Node, topic: str) -> None:
    client = await node.connect()
    response = await client.ask(produce_request(topic, batch(b"x"), timeout_ms=10_000), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_clients_are_refused_until_the_logs_are_open(tmp_path: Path) -> None:
    [port, other] = free_ports(2)
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}"}

    async def prepare() -> None:
        async with running_node(tmp_path, **listeners) as node:
            await node.create_topic("t", segment_bytes=str(1 << 20))
            await write(node, "t", 0)

    async def test() -> None:
        env, gate = gated(HELD)
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                async with running_node(tmp_path, env, **listeners) as node:
                    assert await read(node, "t", 0) == [b"%d" % each for each in range(SEGMENTS)]

            nursery.start_soon(serve)
            client = await reach(other)

            async def is_fenced() -> bool:
                """The only controller has registered its own broker, and others may ask it."""
                request = DescribeClusterRequest(endpoint_type=CONTROLLERS, include_fenced_brokers=False)
                response = await client.ask(request)
                return response.error_code == 0 and await leads(client)

            await settled(is_fenced)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            await settled(lambda: _reached(gate))
            gate.let_go()

    run(prepare)
    crash(tmp_path / "data")
    run(test)


async def test_a_stop_meanwhile_leaves_the_quorum_and_the_logs_as_they_are(tmp_path: Path) -> None:
    async with two_recover(tmp_path, properties=SMALL) as (cluster, gates, nursery):
        asked = {number: await reach(cluster.ports[number - 1]) for number in (1, 2)}

        async def led() -> bool:
            return await leads(asked[1]) or await leads(asked[2])

        await settled(led)
        await cluster.start(3)
        stopping = trio.Event()

        async def stop() -> None:
            await cluster.stop(1)
            stopping.set()

        nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        gates[1].let_go()
        await stopping.wait()
        # Its thread gave up at the next piece, and what it had not opened counts as not in order.
        assert f"{3:020d}.log" not in gates[1].opened
        assert not (tmp_path / "node1" / CLEAN_SHUTDOWN).exists()
        await cluster.until(lambda: cluster.nodes[3].metadata.describe_quorum().leader_id in (2, 3))
        LogManager.lock([tmp_path / "node1"], cluster.envs[3].disk).release()  # nobody has it
        gates[2].let_go()
        await cluster.until(lambda: 2 in cluster.nodes)


async def test_a_broker_alone_is_registered_anew_before_its_logs_are_open(tmp_path: Path) -> None:
    """Its controller is another node, which has missed it; whoever is registered anew leads nothing yet."""
    roles = {1: "controller", 2: "broker"}
    async with quorum(tmp_path, 2, initial=1, roles_of=roles, properties=SMALL) as cluster:
        await cluster.start(1, 2)
        assert await create(await cluster.controller_client(1), "t", 2) == 0
        await holds(cluster, 2, "t")
        await write(cluster.node(2), "t", 0)
        metadata = cluster.nodes[1].metadata
        before = metadata.image.brokers[2].epoch
        await cluster.kill(2)
        # The only broker keeps what it leads if it is registered anew before it was missed.
        await metadata.wait_for_image(lambda image: image.brokers[2].fenced)
        crash(tmp_path / "node2")
        cluster.envs[2], gate = gated(HELD)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, 2)
            await metadata.wait_for_image(lambda image: image.brokers[2].epoch > before)
            await settled(lambda: _reached(gate))
            assert metadata.image.brokers[2].fenced
            assert metadata.image.topics.by_name["t"].partitions[0].leader == -1
            gate.let_go()
        assert await read(cluster.node(2), "t", 0) == [b"%d" % each for each in range(SEGMENTS)]


class FailingGate(Gate):
    """A gate behind which the disk is found to be broken."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        if path.endswith(self._name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return file


def test_an_only_log_dir_that_fails_meanwhile_ends_the_node(tmp_path: Path) -> None:
    async def prepare() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", segment_bytes=str(1 << 20))
            await write(node, "t", 0)

    async def test() -> None:
        env, _ = gated(HELD)
        env.disk = gate = FailingGate(HELD)
        async with trio.open_nursery() as nursery:

            async def let_go() -> None:
                await settled(lambda: _reached(gate))
                gate.let_go()

            nursery.start_soon(let_go)
            async with running_node(tmp_path, env):
                raise AssertionError("it serves")

    run(prepare)
    crash(tmp_path / "data")
    with pytest.RaisesGroup(FatalError, flatten_subgroups=True) as caught:
        run(test)
    assert caught.group_contains(FatalError, match="no log dir can be used: .*Input/output error")
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()

    async def again() -> None:
        async with running_node(tmp_path) as node:
            assert await read(node, "t", 0) == [b"%d" % each for each in range(SEGMENTS)]

    run(again)


async def _reached(gate: Gate) -> bool:
    return gate.reached.is_set()


async def test_one_of_two_log_dirs_that_fails_meanwhile_is_told_of(tmp_path: Path) -> None:
    """By the first heartbeat after it (`test_fenced_heartbeats`); the node serves what the other directory holds."""
    dirs = [tmp_path / "node3", tmp_path / "more"]
    two = {"log.dirs": ",".join(map(str, dirs)), **SMALL}
    async with quorum(tmp_path, properties_of={3: two}) as cluster, trio.open_nursery() as nursery:
        await cluster.start(1, 2, 3)
        client = await cluster.controller_client(await cluster.await_leader())
        for name in ("a", "b"):
            assert await create(client, name, 3) == 0
        await cluster.until(lambda: len(partitions_of(cluster, 3)) == 2)
        for name in ("a", "b"):
            await write(cluster.node(3), name, 0)

        def in_their_place() -> bool:
            found = [topic.partitions[0].directories[0] for topic in cluster.newest_image().topics.by_name.values()]
            return set(found) == {each.directory_id for each in cluster.nodes[3].log_manager.log_dirs}

        await cluster.until(in_their_place)
        await cluster.stop(3)
        crash(*dirs)
        env, _ = gated(HELD)
        [held] = dirs[1].glob("*/" + HELD)
        env.disk = gate = FailingGate(str(held))
        cluster.envs[3] = env
        nursery.start_soon(cluster.start, 3)
        await settled(lambda: _reached(gate))
        gate.let_go()
        await cluster.until(lambda: 3 in cluster.nodes)
        lost, kept = held.parent.name[:1], "b" if held.parent.name[:1] == "a" else "a"
        await cluster.until(lambda: cluster.newest_image().topics.by_name[lost].partitions[0].leader == -1)
        assert await read(cluster.node(3), kept, 0) == [b"%d" % each for each in range(SEGMENTS)]


def test_the_page_shows_the_controller_meanwhile(tmp_path: Path) -> None:
    [page] = free_ports(1)
    properties = {"prometheus_metrics_reporter_listener": f"http://127.0.0.1:{page}"}

    async def prepare() -> None:
        async with running_node(tmp_path) as node:
            await node.create_topic("t", segment_bytes=str(1 << 20))
            await write(node, "t", 0)

    async def test() -> None:
        env, gate = gated(HELD)
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                async with running_node(tmp_path, env, **properties):
                    pass

            nursery.start_soon(serve)
            await settled(lambda: _reached(gate))

            async def is_active() -> bool:
                shown = await in_thread(scrape, page)
                assert value(shown, "kafka_server_kafkaserver_brokerstate") == 2
                return bool(value(shown, "kafka_controller_kafkacontroller_activecontrollercount"))

            try:
                await settled(is_active)
            finally:
                gate.let_go()

    run(prepare)
    crash(tmp_path / "data")
    run(test)
