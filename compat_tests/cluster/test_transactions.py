"""A topic is copied in transactions while brokers are killed: each message arrives once, in order."""

from __future__ import annotations

import time
import uuid
from itertools import cycle

import confluent_kafka
import pytest

from compat_tests.cluster.load import create_topic
from compat_tests.transactions.participants import committed_offsets, participant_of
from compat_tests.transactions.test_exactly_once import Copier
from kbroker.testing import RunningCluster

PARTITIONS = 2
LIMIT_SECONDS = 120


def _copied(bootstrap: str, topic: str) -> int:
    """How many messages of the source the copier has committed; -1 while nobody can say."""
    try:
        return sum(max(0, offset) for offset in committed_offsets(bootstrap, "copiers", topic, timeout=2))
    except confluent_kafka.KafkaException:
        return -1


def test_a_copy_is_exact_while_brokers_are_killed(
    cluster: RunningCluster, rounds: int, pytestconfig: pytest.Config
) -> None:
    messages = pytestconfig.getoption("--messages") or 400
    batch, step = messages // 200, max(80, messages // 20)
    bootstrap = cluster.bootstrap_servers
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "target"))
    for topic in (source, target):
        create_topic(bootstrap, topic, PARTITIONS)
    helper = participant_of("confluent-kafka", bootstrap)
    producer = helper.open()
    wanted = [[f"{partition}-{each}" for each in range(messages // PARTITIONS)] for partition in range(PARTITIONS)]
    for partition, values in enumerate(wanted):
        producer.begin()
        producer.send(source, partition, values)
        producer.call("commit")
    # Each partition ends with the marker of its transaction, which is copied past but is no message.
    began = time.monotonic()
    deadline = began + LIMIT_SECONDS * rounds + messages / 200
    copier = Copier("confluent-kafka", bootstrap, source, target, messages, batch)
    kills = 0
    try:
        for node in cycle(cluster.nodes):
            reached = _copied(bootstrap, source)
            while (copied := _copied(bootstrap, source)) < messages and copied < reached + step:
                assert time.monotonic() < deadline, (copied, copier.failures)
                time.sleep(0.1)
            if copied >= messages:
                break
            print(f"{time.monotonic() - began:.1f} s: {copied} copied, node {node.id} is killed")
            if kills % 2:
                copier.kill()
            node.kill()
            kills += 1
            node.start()
            cluster.await_in_sync()
        copier.end()
        found = [helper.read(target, partition, "read_committed") for partition in range(PARTITIONS)]
    finally:
        copier.end()
        helper.close()
    print(f"{copier.lives} copiers, {kills} brokers killed, failures: {copier.failures}")
    for values, expected in zip(found, wanted, strict=True):
        assert values == expected, "a message is missing, twice there, or out of order"
    assert kills, "nobody was killed"
