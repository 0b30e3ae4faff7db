"""Batches that are small on the wire and large unpacked, from a stock producer: found by time, read and compacted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.testing import RunningBroker, running_broker
from tests.patience import LONG, SHORT, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

RECORDS = 325
KEYS = 5
VALUE = b"v" * 500_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"log.cleaner.backoff.ms": "100"}) as running:
        yield running


def topic(broker: RunningBroker, name: str, config: dict[str, str]) -> str:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    client.create_topics([admin.NewTopic(name, 1, 1, config=config)])[name].result(SHORT)
    return name


def send_in_one_batch(broker: RunningBroker, name: str, begin: int = 1) -> None:
    """Record N has the time ``begin`` + N and one of a few keys; all but the last have 500 kB of one letter."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": "zstd",
            "linger.ms": 2_000,
            "batch.size": 400_000_000,
            "message.max.bytes": 400_000_000,
            "queue.buffering.max.kbytes": 800_000,
        }
    )
    failed: list[Any] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for number in range(RECORDS):
        producer.produce(name, VALUE, b"%d" % (number % KEYS), timestamp=begin + number, on_delivery=told)
    assert producer.flush(LONG) == 0
    assert failed == []


def sizes(broker: RunningBroker, name: str) -> list[tuple[int, int]]:
    """Offset and length of the value of each record."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "receive.message.max.bytes": 1_000_000_000}
    )
    try:
        _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(name, 0), timeout=SHORT)
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        found: list[tuple[int, int]] = []
        while not found or found[-1][0] < end - 1:
            for message in consumer.consume(20, 1):
                assert message.error() is None, message.error()
                found.append((message.offset(), len(message.value() or b"")))
        return found
    finally:
        consumer.close()


def test_a_batch_that_unpacks_to_much_is_found_by_time(broker: RunningBroker) -> None:
    name = topic(broker, "by-time", {"retention.ms": "-1"})
    send_in_one_batch(broker, name)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "receive.message.max.bytes": 1_000_000_000}
    )
    for wanted in (1, 200, RECORDS):
        [found] = consumer.offsets_for_times([confluent_kafka.TopicPartition(name, 0, wanted)], timeout=SHORT)
        assert found.offset == wanted - 1
    consumer.close()
    assert sizes(broker, name) == [(number, len(VALUE)) for number in range(RECORDS)]


@pytest.mark.everything
@pytest.mark.slow
def test_a_batch_that_unpacks_to_much_is_compacted(broker: RunningBroker) -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1048576"}
    name = topic(broker, "compacted", {**config, "segment.ms": "1"})
    send_in_one_batch(broker, name)
    send_in_one_batch(broker, name, begin=1000)  # it is later, so that another segment begins
    eventually(lambda: len(sizes(broker, name)) <= RECORDS + KEYS)
    found = sizes(broker, name)
    assert [offset for offset, _ in found[-RECORDS:]] == list(range(RECORDS, 2 * RECORDS))
