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
from tests.patience import LONG

PARTITIONS = 2


class Copying:
    """A topic of which half is written, and a process that copies it to another in transactions."""

    def __init__(self, bootstrap: str, messages: int, batch: int) -> None:
        self._bootstrap = bootstrap
        self._source, self._target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("source", "target"))
        for topic in (self._source, self._target):
            create_topic(bootstrap, topic, PARTITIONS)
        self._helper = participant_of("confluent-kafka", bootstrap)
        count = messages // PARTITIONS
        self._half = count // 2
        self._wanted = [[f"{partition}-{each}" for each in range(count)] for partition in range(PARTITIONS)]
        self._write(slice(self._half))
        self.copier = Copier("confluent-kafka", bootstrap, self._source, self._target, messages, batch)

    def _write(self, part: slice) -> None:
        producer = self._helper.open()
        for partition, values in enumerate(self._wanted):
            producer.begin()
            producer.send(self._source, partition, values[part])
            producer.call("commit")

    def write_the_rest(self) -> None:
        """The other half; before that, nobody can have copied all."""
        self._write(slice(self._half, None))

    @property
    def copied(self) -> int:
        """The number of messages that are copied; -1 while no coordinator answers."""
        try:
            offsets = committed_offsets(self._bootstrap, self.copier.group, self._source, timeout=20)
        except confluent_kafka.KafkaException:
            return -1
        # Behind each half there is the marker of its transaction, which is no message.
        return sum(max(0, offset - (offset > self._half)) for offset in offsets)

    def judge(self) -> None:
        """All of it is there, once and in order; the copier is not to run any more."""
        for partition, expected in enumerate(self._wanted):
            self._helper.await_committed(self._target, partition, expected)

    def close(self) -> None:
        """End the processes."""
        self.copier.end()
        self._helper.close()


def test_a_copy_is_exact_while_brokers_are_killed(
    cluster: RunningCluster, rounds: int, pytestconfig: pytest.Config
) -> None:
    messages = pytestconfig.getoption("--messages") or 400
    step = max(80, messages // 20)
    began = time.monotonic()
    deadline = began + 2 * LONG * rounds + messages / 200
    copying = Copying(cluster.bootstrap_servers, messages, messages // 200)
    copier = copying.copier
    kills = 0
    try:
        for node in cycle(cluster.nodes):
            reached = copying.copied
            # The copier may be much quicker than this process: the first is killed before there is all to copy.
            while (copied := copying.copied) < messages and copied < max(reached, 0) + (step if kills else 1):
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
            if kills == 1:
                copying.write_the_rest()
        copier.end()
        copying.judge()
    finally:
        copying.close()
    print(f"{copier.lives} copiers, {kills} brokers killed, failures: {copier.failures}")
    assert kills, "nobody was killed"
