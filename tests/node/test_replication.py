"""Three nodes that replicate each other's partitions, over TCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from node_harness import batch, fetch_request, produce_request, run, values
from quorum_harness import Quorum, quorum

from kbroker.node.partition import Partition
from kbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TOPIC = "replicated"


async def create(cluster: Quorum, name: str = TOPIC, *, partitions: int = 1, factor: int = 3, **configs: str) -> bytes:
    """A topic on several nodes, known to all."""
    node_id = min(cluster.nodes)
    client = await cluster.node(node_id).connect()
    response = await client.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=factor,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=5000,
        )
    )
    assert response.topics[0].error_code == 0, response
    await client.stream.aclose()
    await cluster.topics_everywhere([name])
    return bytes(response.topics[0].topic_id)


def replica(cluster: Quorum, node_id: int, topic: str = TOPIC, index: int = 0) -> Partition:
    """A node's replica."""
    return cluster.nodes[node_id].replica_manager.partitions[topic, index]


def leader_of(cluster: Quorum, topic: str = TOPIC, index: int = 0) -> int:
    """Who leads, as the newest image of all nodes says."""
    image = max((node.driver.image for node in cluster.nodes.values()), key=lambda image: image.offset)
    found = image.topics.partition(topic, index)
    assert found is not None
    return int(found.leader)


def log_of(partition: Partition) -> bytes:
    """All bytes of the log."""
    return partition.log.read_bytes(partition.log.log_start_offset, 1 << 24) if partition.log.log_end_offset else b""


async def produce(cluster: Quorum, node_id: int, *records: bytes, topic_id: bytes, acks: int = -1) -> Any:
    """Produce a batch to a node; the partition's answer."""
    client = await cluster.node(node_id).connect()
    response = await client.ask(produce_request("", batch(*records), topic_id=topic_id, acks=acks, timeout_ms=5000))
    await client.stream.aclose()
    return response.responses[0].partition_responses[0]


def test_what_is_acknowledged_is_on_all_in_sync_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            topic_id = await create(cluster)
            leader = leader_of(cluster)
            for number in range(20):
                began = trio.current_time()
                answer = await produce(cluster, leader, b"%d" % number, topic_id=topic_id)
                print(f"acknowledged after {(trio.current_time() - began) * 1000:.1f} ms")
                assert (answer.error_code, answer.base_offset) == (0, number)
                for node_id in cluster.nodes:
                    assert replica(cluster, node_id).log.log_end_offset == number + 1
            whole = log_of(replica(cluster, leader))
            assert all(log_of(replica(cluster, node_id)) == whole for node_id in cluster.nodes)
            assert replica(cluster, leader).high_watermark == 20
            await cluster.until(lambda: all(replica(cluster, node_id).high_watermark == 20 for node_id in cluster.nodes))
            client = await cluster.node(leader).connect()
            fetched = await client.ask(fetch_request("", topic_id=topic_id))
            found = values(fetched.responses[0].partitions[0].records)
            assert found == [(number, b"%d" % number) for number in range(20)]

    run(main)
