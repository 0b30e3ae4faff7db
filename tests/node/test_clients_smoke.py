"""Stock clients against a running node: the widest test of the data plane there is for a second's work.

The long list of what clients do is in ``compat_tests``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kbroker.testing import RunningBroker, running_broker
from tests.patience import LONG, LONG_MS

VALUES = [b"%05d" % index for index in range(2000)]


@pytest.fixture(scope="module")
def node() -> Iterator[RunningBroker]:
    with running_broker({"num.partitions": "1"}) as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_kafka(node: RunningBroker, codec: str, acks: str) -> None:
    ck = pytest.importorskip("confluent_kafka")
    topic = f"ck-{codec}-{acks}"
    failed: list[object] = []
    producer = ck.Producer(
        {
            "bootstrap.servers": node.bootstrap_servers,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": acks == "all",
        }
    )
    for value in VALUES:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(LONG) == 0
    assert not failed
    consumer = ck.Consumer(
        {"bootstrap.servers": node.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    got: list[bytes] = []
    deadline = time.monotonic() + LONG
    while len(got) < len(VALUES) and time.monotonic() < deadline:
        got += [message.value() for message in consumer.consume(1000, 1.0) if not message.error()]
    assert got == VALUES
    assert consumer.get_watermark_offsets(ck.TopicPartition(topic, 0)) == (0, len(VALUES))
    now = int(time.time() * 1000)
    (found,) = consumer.offsets_for_times([ck.TopicPartition(topic, 0, now - 3_600_000)])
    assert found.offset == 0
    consumer.close()


def test_kafka_python(node: RunningBroker) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=node.bootstrap_servers)
    futures = [producer.send("kp", value) for value in VALUES]
    producer.flush(LONG)
    assert [future.get(LONG).offset for future in futures] == list(range(len(VALUES)))
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=node.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=LONG_MS,
        enable_auto_commit=False,
    )
    partition = kafka.TopicPartition("kp", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    got = []
    for message in consumer:
        got.append(message.value)
        if len(got) == len(VALUES):
            break
    assert got == VALUES
    assert consumer.end_offsets([partition]) == {partition: len(VALUES)}
    # Tailing: what is produced now is read soon, by an incremental fetch session.
    other = kafka.KafkaProducer(bootstrap_servers=node.bootstrap_servers)
    other.send("kp", b"late").get(LONG)
    assert next(consumer).value == b"late"
    other.close()
    consumer.close()
