"""A move between brokers is as slow as its throttle says, by the clock of a simulation (KIP-73)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import ClusterClient
from kbroker.sim.clock import run_deterministically, sim_clock
from kbroker.sim.cluster import SimCluster, simulated_cluster
from kbroker.sim.world import Trace
from kbroker.types import TopicPartition
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.record_batch import Record, build_batch

MOVED = TopicPartition("moved", 0)
RATE = 50_000
SIZE = 1_000_000
ONE_BYTE = {"follower_replication_throttled_rate": "1", "leader_replication_throttled_rate": "1"}
_TOPIC, _BROKER = 2, 4


async def set_configs(client: ClusterClient, type: int, name: str, **values: str | None) -> None:
    """Set dynamic configs, underscores for dots, or with None delete them."""
    configs = [
        IncrementalAlterableConfig(
            name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value
        )
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=type, resource_name=name, configs=configs)
    node = int(name) if type == _BROKER and name else client.any_node()  # a broker's own properties are its to judge
    response = await client.ask(node, IncrementalAlterConfigsRequest(resources=[resource]))
    assert response is not None and response.responses[0].error_code == 0, response


async def write(client: ClusterClient, leader: int, size: int) -> None:
    """Append ``size`` bytes and a little to the partition."""
    for _ in range(size // 50_000):
        batch = build_batch([Record(0, 1_700_000_000_000, None, random.Random(1).randbytes(50_000))])
        data = PartitionProduceData(index=MOVED.partition, records=memoryview(bytearray(batch)))
        request = ProduceRequest(
            acks=1, timeout_ms=3000, topic_data=[TopicProduceData(name=MOVED.topic, partition_data=[data])]
        )
        response = await client.ask(leader, request, version=12)
        assert response is not None and response.responses[0].partition_responses[0].error_code == 0, response


async def move(cluster: SimCluster, client: ClusterClient, to: list[int], within: float) -> float:
    """Move the partition; the simulated seconds that it takes."""
    began = trio.current_time()
    assert await client.reassign(MOVED, to) == ErrorCode.NONE

    def done() -> bool:
        assigned = cluster.partition(MOVED)
        return assigned is not None and list(assigned.replicas) == to and sorted(assigned.isr) == sorted(to)

    await cluster.until(done, within, f"{MOVED} is not on {to}")
    return trio.current_time() - began


def simulate(course: Callable[[SimCluster, ClusterClient], Awaitable[None]]) -> None:
    """Run it with the partition on node 1."""
    # What one fetch takes is paid for afterwards: there are to be many of them.
    properties = {"replica.fetch.max.bytes": "20000"}

    async def main() -> None:
        async with simulated_cluster(1, Trace(sim_clock()), count=3, properties=properties) as cluster:
            for node in cluster.nodes.values():
                node.start()
            await cluster.await_serving()
            client = cluster.client()
            await client.create_topic(MOVED.topic, 1, 1, assignments={0: [1]})
            await cluster.await_leader(MOVED)
            await write(client, 1, SIZE)
            await course(cluster, client)

    run_deterministically(1, main)


@pytest.mark.parametrize("side", ["leader", "follower", "both"])
def test_a_throttled_move_takes_its_time(side: str) -> None:
    async def course(cluster: SimCluster, client: ClusterClient) -> None:
        assert await move(cluster, client, [2], 10) < 3, "without a throttle"
        await move(cluster, client, [1], 10)
        if side != "follower":
            await set_configs(client, _BROKER, "1", leader_replication_throttled_rate=str(RATE))
            await set_configs(client, _TOPIC, MOVED.topic, leader_replication_throttled_replicas="0:1")
        if side != "leader":
            await set_configs(client, _BROKER, "", follower_replication_throttled_rate=str(RATE))
            await set_configs(client, _TOPIC, MOVED.topic, follower_replication_throttled_replicas="*")
        await cluster.run_for(1)
        taken = await move(cluster, client, [3], 120)
        assert SIZE / RATE * 0.8 <= taken <= SIZE / RATE * 1.3, taken

    simulate(course)


def test_a_throttle_that_is_taken_away_is_gone_at_once() -> None:
    async def course(cluster: SimCluster, client: ClusterClient) -> None:
        await set_configs(client, _BROKER, "", **ONE_BYTE)
        await set_configs(
            client,
            _TOPIC,
            MOVED.topic,
            follower_replication_throttled_replicas="0:2",
            leader_replication_throttled_replicas="0:1",
        )
        assert await client.reassign(MOVED, [2]) == ErrorCode.NONE
        await cluster.run_for(30)
        assigned = cluster.partition(MOVED)
        assert assigned is not None and list(assigned.adding_replicas) == [2], "at a byte a second it is not there yet"
        await set_configs(
            client,
            _TOPIC,
            MOVED.topic,
            follower_replication_throttled_replicas=None,
            leader_replication_throttled_replicas=None,
        )
        await cluster.until(lambda: list(cluster.partition(MOVED).replicas) == [2], 4, "it is still slow")  # type: ignore[union-attr]

    simulate(course)


def test_replicas_in_sync_are_never_held_back() -> None:
    async def course(cluster: SimCluster, client: ClusterClient) -> None:
        await move(cluster, client, [1, 2, 3], 10)
        await set_configs(client, _BROKER, "", **ONE_BYTE)
        await set_configs(
            client,
            _TOPIC,
            MOVED.topic,
            follower_replication_throttled_replicas="*",
            leader_replication_throttled_replicas="*",
        )
        await cluster.run_for(1)
        for _ in range(20):
            await write(client, 1, 50_000)
            await cluster.run_for(1)
            isr = cluster.partition(MOVED).isr  # type: ignore[union-attr]
            assert sorted(isr) == [1, 2, 3]
        for node in cluster.nodes.values():
            assert node.broker is not None
            log = node.broker.replica_manager.partitions[MOVED].log
            assert log.log_end_offset == SIZE // 50_000 + 20

    simulate(course)
