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
from kbroker.testing import RunningBroker, running_broker
from kbroker.types import TopicPartition
from tests.patience import LONG, SHORT, eventually

PAGE = Path(__file__).parents[2] / "docs" / "share_groups.md"
HALF_A_LOCK = 121
"""Seconds; twice that is more than a lock."""
LOCK_MS = 240_000
UNHURRIED = {
    "group.share.max.record.lock.duration.ms": f"{LOCK_MS}",
    "group.share.record.lock.duration.ms": f"{LOCK_MS}",
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
        assert producer.flush(LONG) == 0
        with lines_of([*program(source), broker.bootstrap_servers, "100"]) as lines:
            assert next(lines) == "0: accept"
            for _ in range(2):
                await_renewal(broker)
                broker.advance(HALF_A_LOCK)
            await_renewal(broker)
            assert [next(lines), next(lines)] == ["3600000: renew"] * 2


def await_renewal(broker: RunningBroker) -> None:
    """Wait until more of the lock is left than the clock was moved by: lines of the program may be of before that.

    The job is still with the worker that had it first.
    """
    job = TopicPartition("jobs", 0)

    def is_renewed() -> bool:
        with Client(broker.bootstrap_servers, timeout=SHORT) as client:
            told = share_in_flight(client, describe_share_group(client, "workers"), [job])[job]
        assert isinstance(told, PartitionInFlight), told
        [held] = told.ranges
        assert (held.first_offset, held.state, held.delivery_count) == (1, "acquired", 1)
        return (held.lock_ms_left or 0) > LOCK_MS - HALF_A_LOCK * 1000

    eventually(is_renewed, "a renewal")


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
