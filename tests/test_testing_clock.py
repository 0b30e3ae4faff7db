"""A broker whose clocks a test moves: what is due by then is done when the call returns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from kbroker.testing import RunningBroker, running_broker
from tests.patience import LONG

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin = pytest.importorskip("confluent_kafka.admin")

HOUR = "3600000"
SESSION = {"group.consumer.max.session.timeout.ms": HOUR, "group.consumer.session.timeout.ms": HOUR}

ROUNDED = 0.1
"""Seconds, for the milliseconds of the wall clock and its own corrections."""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker(SESSION) as broker:
        yield broker


def clocks(broker: RunningBroker) -> tuple[float, float]:
    """The broker's monotonic and wall clock, in seconds."""
    return broker.in_broker(lambda node: (node.env.now(), node.env.wall_clock_ms() / 1000))


def test_both_clocks_go_ahead_alike_and_stay_ahead(broker: RunningBroker) -> None:
    begin = time.monotonic()
    before = clocks(broker)
    broker.advance(3600)
    after = clocks(broker)
    passed = time.monotonic() - begin
    for earlier, later in zip(before, after, strict=True):
        assert 3600 - ROUNDED <= later - earlier <= 3600 + passed + ROUNDED
    broker.restart()
    begin = time.time()
    now = clocks(broker)[1]
    assert begin - ROUNDED <= now - 3600 <= time.time() + ROUNDED
    with pytest.raises(ValueError, match="ahead only"):
        broker.advance(-1)
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.advance(1)


def test_a_broker_that_has_not_started_cannot_be_moved() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        RunningBroker().advance(1)


def test_what_is_due_is_done_also_where_a_disk_is_slow(broker: RunningBroker) -> None:
    done: list[str] = []

    def write() -> None:
        time.sleep(0.2)  # the disk; the broker's loop has nothing to do meanwhile
        done.append("on the disk")

    async def late(node: Any) -> None:
        await trio.sleep(600)
        await node.env.run_blocking(write)
        done.append("and told")

    broker.in_broker(lambda node: trio.lowlevel.spawn_system_task(late, node))
    broker.advance(601)
    assert done == ["on the disk", "and told"]


def members(broker: RunningBroker, group: str) -> int:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return len(client.describe_consumer_groups([group])[group].result(LONG).members)


def test_a_static_member_that_is_away_is_missed_when_its_session_is_over(broker: RunningBroker) -> None:
    """Its place is kept for an hour, which nobody waits for."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("jobs", "one")
    producer.flush(LONG)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "workers",
            "group.instance.id": "first",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["jobs"])
    assert consumer.poll(LONG).value() == b"one"
    consumer.close()
    broker.advance(3000)  # the rest is left for a slow machine
    assert members(broker, "workers") == 1
    broker.advance(601)
    assert members(broker, "workers") == 0


def test_a_day_passes_in_no_time_and_the_broker_serves_on(broker: RunningBroker) -> None:
    """A single node is not fenced, its quorum stays, and its own connections come back."""
    for _ in range(24):
        broker.advance(3600)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    errors: list[object] = []
    producer.produce("after", "a day", on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(LONG) == 0 and errors == [None]
    assert not [line.getMessage() for line in broker.logs if line.levelname in ("WARNING", "ERROR")]
