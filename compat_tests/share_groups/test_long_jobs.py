"""The recipe in Java of docs/share_groups.md: a worker that renews its lock while it works."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from compat_tests.java.client import program
from kbroker.client import Client
from kbroker.client.share_groups import PartitionInFlight, describe_share_group, share_in_flight
from kbroker.testing import running_broker
from kbroker.types import TopicPartition

PAGE = Path(__file__).parents[2] / "docs" / "share_groups.md"
HALF_A_LOCK = 121
"""Seconds; twice that is more than a lock."""
UNHURRIED = {
    "group.share.max.record.lock.duration.ms": "240000",
    "group.share.record.lock.duration.ms": "240000",
    "group.share.max.session.timeout.ms": "600000",
    "group.share.session.timeout.ms": "600000",
}
"""The other half of a lock is left for the next renewal, and a member is not missed, however slow the machine is."""


@pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
)
def test_a_lock_is_renewed_for_longer_than_it_lasts(tmp_path: Path) -> None:
    """The broker's clock is moved by half a lock, twice, and the job is still with the worker that had it first."""
    (recipe,) = re.findall(r"^```java\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    source = tmp_path / "LongJobs.java"
    source.write_text(recipe, "utf-8")
    with running_broker(UNHURRIED) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("jobs", 1)])["jobs"].result()
        begin = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[begin])
        admin.incremental_alter_configs([group])[group].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for milliseconds in ("0", "3600000"):
            producer.produce("jobs", milliseconds)
        assert producer.flush(180) == 0
        with lines_of([*program(source), broker.bootstrap_servers, "100"]) as lines:
            assert next(lines) == "0: accept"
            for _ in range(2):
                # The second of two renewals has certainly begun after the clock was moved.
                assert [next(lines), next(lines)] == ["3600000: renew"] * 2
                broker.advance(HALF_A_LOCK)
            assert [next(lines), next(lines)] == ["3600000: renew"] * 2
            with Client(broker.bootstrap_servers) as client:
                partition, workers = TopicPartition("jobs", 0), describe_share_group(client, "workers")
                told = share_in_flight(client, workers, [partition])[partition]
        assert isinstance(told, PartitionInFlight)
        assert [(each.first_offset, each.state, each.delivery_count) for each in told.ranges] == [(1, "acquired", 1)]


@contextmanager
def lines_of(command: list[str]) -> Iterator[Iterator[str]]:
    """The lines that a program prints, which is ended afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        yield (line.rstrip() for line in process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
