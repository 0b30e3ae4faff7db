"""Three nodes that replicate each other's partitions, over TCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from node_harness import batch, fetch_request, produce_request, run, values
from quorum_harness import Quorum, quorum

from kbroker.errors import ErrorCode
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
            await cluster.until(lambda: all(replica(cluster, each).high_watermark == 20 for each in cluster.nodes))
            client = await cluster.node(leader).connect()
            fetched = await client.ask(fetch_request("", topic_id=topic_id))
            found = values(fetched.responses[0].partitions[0].records)
            assert found == [(number, b"%d" % number) for number in range(20)]

    run(main)


async def produce_until_acknowledged(cluster: Quorum, *records: bytes, topic_id: bytes) -> int:
    """Produce to whoever leads, as often as it takes; the offset. A record may be there twice."""
    with trio.fail_after(15):
        while True:
            leader = leader_of(cluster)
            if leader in cluster.nodes:
                try:
                    answer = await produce(cluster, leader, *records, topic_id=topic_id)
                except (OSError, EOFError, trio.BrokenResourceError):
                    answer = None
                if answer is not None and answer.error_code == 0:
                    return int(answer.base_offset)
            await trio.sleep(0.02)


def test_nothing_acknowledged_is_lost_with_the_leader(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            topic_id = await create(cluster, min_insync_replicas="2")
            old = leader_of(cluster)
            for number in range(10):
                assert (await produce(cluster, old, b"%d" % number, topic_id=topic_id)).error_code == 0
            await cluster.kill(old)
            began = trio.current_time()
            await produce_until_acknowledged(cluster, b"after", topic_id=topic_id)
            print(f"acknowledged again after {trio.current_time() - began:.2f} s")
            new = leader_of(cluster)
            assert new != old
            expected = [b"%d" % number for number in range(10)]
            found = [value for _, value in values(log_of(replica(cluster, new)))]
            assert found[:10] == expected and set(found[10:]) == {b"after"}

            # The ISR shrinks, and grows again once the old leader is back, as a follower.
            await cluster.until(lambda: old not in replica(cluster, new).state.isr)
            await cluster.start(old)
            await cluster.until(lambda: replica(cluster, leader_of(cluster)).state.isr == {1, 2, 3})
            end = replica(cluster, leader_of(cluster)).log.log_end_offset
            await cluster.until(lambda: all(replica(cluster, each).log.log_end_offset == end for each in cluster.nodes))
            assert len({log_of(replica(cluster, node_id)) for node_id in cluster.nodes}) == 1

    run(main)


def test_what_only_a_dead_leader_had_is_cut_off(tmp_path: Path) -> None:
    """It was never acknowledged, and the new leader wrote other records at the same offsets (KIP-101, KIP-279)."""

    async def main() -> None:
        async with quorum(tmp_path, broker_session_timeout_ms="1500") as cluster:
            await cluster.start(1, 2, 3)
            await cluster.await_leader()
            topic_id = await create(cluster, min_insync_replicas="2")
            old = leader_of(cluster)
            assert (await produce(cluster, old, b"both", topic_id=topic_id)).error_code == 0
            # The followers cannot fetch any more, and the leader takes a record that only it will have.
            for node_id, node in cluster.nodes.items():
                if node_id != old:
                    fetchers = node.replica_manager.fetchers
                    assert fetchers is not None
                    fetchers.unfollow(replica(cluster, node_id))
            for _ in range(3):
                assert (await produce(cluster, old, b"lost", topic_id=topic_id, acks=1)).error_code == 0
            await cluster.kill(old)
            await produce_until_acknowledged(cluster, b"kept", topic_id=topic_id)
            await cluster.start(old)
            leader = leader_of(cluster)

            def same() -> bool:
                return log_of(replica(cluster, old)) == log_of(replica(cluster, leader))

            await cluster.until(same)
            found = [value for _, value in values(log_of(replica(cluster, old)))]
            assert found[0] == b"both" and set(found[1:]) == {b"kept"}

    run(main)


def test_too_few_replicas(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, replica_lag_time_max_ms="1000") as cluster:
            await cluster.start(1, 2, 3)
            controller = await cluster.await_leader()
            topic_id = await create(cluster, min_insync_replicas="3")
            leader = leader_of(cluster)
            assert (await produce(cluster, leader, b"1", topic_id=topic_id)).error_code == 0
            gone = next(node_id for node_id in cluster.nodes if node_id not in (leader, controller))
            await cluster.kill(gone)
            await cluster.until(lambda: len(replica(cluster, leader).state.isr) == 2)
            answer = await produce(cluster, leader, b"2", topic_id=topic_id)
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await produce(cluster, leader, b"3", topic_id=topic_id, acks=1)).error_code == 0
            assert replica(cluster, leader).high_watermark == 1
            await cluster.start(gone)
            await cluster.until(lambda: replica(cluster, leader).high_watermark == 2)
            assert (await produce(cluster, leader, b"4", topic_id=topic_id)).error_code == 0

    run(main)
