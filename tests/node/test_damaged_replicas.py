"""Three nodes, three replicas of everything, and files of one node that are damaged while nobody runs: all is read, and
all copies are whole again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.nodes import describe_log_dirs
from kbroker.client.topics import NewTopic, PartitionDescription, create_topics, list_topics
from kbroker.log.damage import FILE_NAME as DAMAGE
from kbroker.testing import ClusterNode, RunningCluster, running_cluster
from kbroker.tools.diagnosis.facts import damaged_replicas
from kbroker.types import TopicPartition
from tests.every_node import await_topics
from tests.patience import LONG, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.slow

COUNT = 600
PER_BATCH = 30
PAGE = 4096
GROUP = "readers"


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def zero_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = len(data) // 2 // PAGE * PAGE
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    path.write_bytes(data)


def cut_in_two(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


WAYS: Mapping[str, Callable[[Path], None]] = {
    "flipped": flip_a_bit,
    "zeroed": zero_a_page,
    "cut": cut_in_two,
    "emptied": empty,
    "removed": Path.unlink,
}


def log_of(node: ClusterNode, partition: str) -> Path:
    return node.data_dir / partition / "00000000000000000000.log"


def produce(cluster: RunningCluster) -> None:
    """Have `COUNT` records of each topic acknowledged by all in-sync replicas, in batches of `PER_BATCH`."""
    failed: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 60_000}
    producer = confluent_kafka.Producer(settings | {"batch.num.messages": PER_BATCH})
    for number in range(COUNT):
        for topic in WAYS:
            producer.produce(topic, b"%06d" % number * 20, on_delivery=on_delivery)
    assert producer.flush(LONG) == 0 and not failed


def consumed(cluster: RunningCluster, topics: Mapping[str, int]) -> dict[str, list[int]]:
    """Returns the numbers that a consumer reads from the start on, until there are as many as wanted."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "all", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in topics])
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    while any(len(found[topic]) < count for topic, count in topics.items()):
        message = consumer.poll(LONG)
        assert message is not None, {topic: len(read) for topic, read in found.items()}
        if message.error() is None:
            found[message.topic()].append(int(message.value()[:6]))
        else:
            assert message.error().code() != confluent_kafka.KafkaError._BAD_MSG
    consumer.close()
    return found


def commit(cluster: RunningCluster, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP})
    places = [confluent_kafka.TopicPartition(topic, 0, offset) for topic in WAYS]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(cluster: RunningCluster) -> set[int]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    places = consumer.committed([confluent_kafka.TopicPartition(topic, 0) for topic in WAYS], timeout=LONG)
    consumer.close()
    return {place.offset for place in places}


@contextmanager
def written(min_isr: int, count: int = 3, *, replicas: int | None = None, **more: object) -> Iterator[RunningCluster]:
    """Topics that are written, and offsets that are committed. ``more`` are properties with ``_`` for ``.``."""
    properties: dict[str, object] = {"min.insync.replicas": min_isr, "offsets.topic.num.partitions": 1}
    properties |= {name.replace("_", "."): value for name, value in more.items()}
    with running_cluster(count, properties) as cluster:
        with cluster.client() as client:
            made = create_topics(client, [NewTopic(topic, 1, replicas or count) for topic in WAYS])
            assert not any(isinstance(result, Exception) for result in made.values())
        await_topics(cluster, *WAYS)
        produce(cluster)
        for offset in range(0, COUNT + 1, 20):
            commit(cluster, offset)
        cluster.await_in_sync()
        yield cluster


def damage(node: ClusterNode) -> None:
    for topic, way in WAYS.items():
        way(log_of(node, f"{topic}-0"))
    flip_a_bit(log_of(node, "__consumer_offsets-0"))


def check_all_is_whole(cluster: RunningCluster) -> None:
    """Everything is read, and heals: no replica is left with a damaged log, or another one than the others."""
    assert consumed(cluster, dict.fromkeys(WAYS, COUNT)) == {topic: list(range(COUNT)) for topic in WAYS}
    assert committed(cluster) == {COUNT}
    cluster.await_in_sync()
    for topic in WAYS:
        logs = [log_of(node, f"{topic}-0") for node in cluster.nodes]

        def are_the_same(logs: list[Path] = logs) -> bool:
            return len({log.read_bytes() for log in logs}) == 1

        eventually(are_the_same, f"all logs of {topic} are the same")
        assert not any(log.with_name(DAMAGE).exists() for log in logs)


@pytest.mark.everything
@pytest.mark.parametrize("victim", [1, 3])
def test_a_damaged_copy_does_not_win_when_all_were_killed(victim: int) -> None:
    with written(min_isr=2) as cluster:
        cluster.kill()
        damage(cluster.node(victim))
        for node in cluster.nodes:
            node.start(wait=False)
        check_all_is_whole(cluster)


@pytest.mark.everything
def test_a_damaged_copy_does_not_win_although_it_led_last_and_stopped_cleanly() -> None:
    """Nobody else is known to have everything, so all are asked."""
    with written(min_isr=1) as cluster:
        for node in cluster.nodes:
            node.stop()
        damage(cluster.node(3))
        for node in cluster.nodes:
            node.start(wait=False)
        check_all_is_whole(cluster)


def test_what_a_follower_finds_damaged_is_verified_by_its_leader() -> None:
    """The leader has written those bytes itself, and takes them for whole."""
    topic = "flipped"
    with written(min_isr=2, log_scrub_bytes_per_second=0) as cluster:
        leader = cluster.leader_of(topic)
        follower = next(node for node in cluster.nodes if node is not leader)
        follower.kill()
        shutil.rmtree(follower.data_dir / f"{topic}-0")
        flip_a_bit(log_of(leader, f"{topic}-0"))
        follower.start()
        cluster.await_in_sync()
        assert cluster.leader_of(topic) is not leader
        check_all_is_whole(cluster)


@pytest.mark.everything
def test_damage_that_is_found_once_the_only_one_in_sync_leads_is_no_hole_to_consumers() -> None:
    """The other replica left the ISR, and has everything: who leads was elected before anybody knew of the damage."""
    topic = "flipped"
    with written(min_isr=1, replicas=2, unclean_recovery_timeout_ms=1_000_000) as cluster:
        leader = cluster.leader_of(topic)

        def found() -> PartitionDescription:
            with cluster.client() as client:
                [found] = [each.partitions[0] for each in list_topics(client) if each.name == topic]
            return found

        replicas = found().replicas
        [follower] = [node for node in cluster.nodes if node.id in replicas and node is not leader]
        follower.kill()
        eventually(lambda: found().isr == (leader.id,), "the leader is alone in the ISR")
        leader.stop()  # what it wrote itself it would not verify
        log = log_of(leader, f"{topic}-0")
        flip_a_bit(log)
        leader.start()
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(consumed, cluster, {topic: COUNT})
            eventually(log.with_name(DAMAGE).exists, "the damage is found")
            follower.start()
            assert reading.result() == {topic: list(range(COUNT))}


def test_a_log_without_a_whole_copy_keeps_all_that_is_whole_and_says_what_is_missing() -> None:
    topic, partition = "flipped", TopicPartition("flipped", 0)
    with written(min_isr=1, count=1) as cluster:
        [node] = cluster.nodes
        node.stop()
        flip_a_bit(log_of(node, str(partition)))
        node.start()
        read = consumed(cluster, {topic: COUNT - PER_BATCH})[topic]
        missing = sorted(set(range(COUNT)) - set(read))
        assert missing == list(range(missing[0], missing[0] + PER_BATCH)) and len(read) == len(set(read))
        with cluster.client() as client:
            results = describe_log_dirs(client)[node.id].results
            [damaged] = [each for result in results for each in damaged_replicas(node.id, result)]
        assert damaged[:4] == (node.id, partition, missing[0], missing[0] + PER_BATCH)
        node.kill()
        node.start()
        assert consumed(cluster, {topic: COUNT - PER_BATCH})[topic] == read
        kept = [path.name for path in (node.data_dir / str(partition)).iterdir() if path.suffix == ".set-aside"]
        assert len(kept) == 1
