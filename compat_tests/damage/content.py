"""Has stock clients produce what is known: idempotent and transactional records, committed offsets."""

from __future__ import annotations

import time
from typing import Any

import kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.damage.oracle import Content
from tests.patience import LONG

BATCHES, RECORDS = 26, 30
TRANSACTIONS = 8
SEGMENTS = 5
HOUR_MS = 3_600_000
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}
TRANSACTIONAL_ID = "damaged"
GROUPS = ("confluent-1", "confluent-2", "transactional", "kafka-python")


def produce_content(bootstrap: str, nodes: int) -> Content:
    """Create the topics of a cluster of one node or three, and fill them."""
    content = Content(topics={"plain": 2, "txn": 2})
    begin = time.time_ns() // 1_000_000 - 24 * HOUR_MS
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    # Each node leads some partition, and the same of every cluster. Segments are rolled by the records' times.
    replicas = {"plain": [[1, 2, 3], [2, 3, 1]], "txn": [[3, 1, 2], [1, 2, 3]]}
    config = {"segment.ms": str(HOUR_MS // 2), "retention.ms": "-1"}
    topics = [
        NewTopic(
            topic,
            num_partitions=2,
            replica_assignment=[each if nodes == 3 else [1] for each in partitions],
            config=config,
        )
        for topic, partitions in replicas.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(LONG)
    for partition, codec in enumerate(("none", "zstd")):
        producer = Producer(_settings(bootstrap, {"compression.type": codec}))
        for number in range(BATCHES):
            time_ms = begin + number * SEGMENTS // BATCHES * HOUR_MS
            for count in range(RECORDS):
                value = f"plain {partition} {number} {count} {pow(7, number * RECORDS + count + 1, 10**80 + 129)}"
                _produce(producer, content.records, "plain", partition, value, time_ms)
            assert producer.flush(LONG) == 0
    consumers = {name: Consumer({"bootstrap.servers": bootstrap, "group.id": name, **QUICK}) for name in GROUPS[:3]}
    python = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","), group_id="kafka-python", enable_auto_commit=False
    )
    python.assign([kafka.TopicPartition("plain", 0), kafka.TopicPartition("plain", 1)])
    transactional = Producer(_settings(bootstrap, {"transactional.id": TRANSACTIONAL_ID}))
    transactional.init_transactions(LONG)
    for number in range(TRANSACTIONS):
        commits = number % 2 == 1
        transactional.begin_transaction()
        for partition in range(2):
            for count in range(10):
                value = f"txn {partition} {number} {count} {'x' * 80}"
                _produce(transactional, content.records if commits else content.aborted, "txn", partition, value)
        assert transactional.flush(LONG) == 0
        ends = [TopicPartition("plain", 0, 10 * number + 1), TopicPartition("plain", 1, 10 * number + 2)]
        transactional.send_offsets_to_transaction(ends, consumers["transactional"].consumer_group_metadata(), LONG)
        if commits:
            transactional.commit_transaction(LONG)
        else:
            transactional.abort_transaction(LONG)
        for name in ("confluent-1", "confluent-2"):
            consumers[name].commit(offsets=ends, asynchronous=False)
        python.commit(
            {
                kafka.TopicPartition(each.topic, each.partition): kafka.OffsetAndMetadata(each.offset, "", -1)
                for each in ends
            }
        )
        for name in GROUPS:
            if commits or name != "transactional":
                for each in ends:
                    group = content.offsets.setdefault(name, {})
                    group.setdefault(f"{each.topic}-{each.partition}", []).append(each.offset)
    for consumer in consumers.values():
        consumer.close()
    python.close()
    return content


def _settings(bootstrap: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 30_000, **QUICK, **more}


def _produce(
    producer: Producer, known: dict[str, dict[int, str]], topic: str, partition: int, value: str, time_ms: int = 0
) -> None:
    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        known.setdefault(f"{topic}-{partition}", {})[message.offset() or 0] = value

    producer.produce(topic, value, partition=partition, on_delivery=delivered, timestamp=time_ms)
