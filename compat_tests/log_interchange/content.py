"""The content before the hand-over, and a client's reading of it: both must be the same on the other side."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.case import await_ended
from tests.patience import LONG, SHORT, eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "interchange"
NOT_YET = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_WAIT_COORD")
"""Errors of a coordinator that is starting, after which librdkafka does not try again by itself."""
NOT_LED_YET = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "OFFSET_NOT_AVAILABLE")
"""Errors of a partition that nobody leads for a moment."""
BASE_TIME = 1_750_000_000_000
NOT_BY_TIME = ("append-time", "compacted", "compacted-zstd", "trimmed")
"""Apache Kafka looks for a time in one segment alone, and finds nothing if that is empty (it goes by the file's time
then) or lies below the log start; kbroker goes on to the next one."""

Content = tuple[int, tuple[int, int], bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def topics() -> list[NewTopic]:
    """Every kind of topic that has files of its own kind."""
    keep = {"retention.ms": "-1"}  # the records' times are fixed, and long past
    small = {"internal.segment.bytes": "20000", "index.interval.bytes": "500", **keep}
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **small}
    made = [NewTopic(f"codec-{codec}", 1, 1, config=keep) for codec in CODECS]
    made += [
        NewTopic("segments", 2, 1, config=small),
        NewTopic("compacted", 1, 1, config=compact),
        NewTopic("compacted-zstd", 1, 1, config=compact),
        NewTopic("append-time", 1, 1, config={"message.timestamp.type": "LogAppendTime", **small}),
        NewTopic("transactions", 1, 1, config=small),
        NewTopic("empty", 2, 1, config=keep),
        NewTopic("trimmed", 1, 1, config=small),
    ]
    return made


def bounds(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """The first offset and the end of a partition, once the node leads it.

    A node serves after a kill a moment before it leads again, and librdkafka does not ask again by itself.
    """
    found: list[tuple[int, int]] = []

    def ask() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=LONG))
        except KafkaException as error:
            if error.args[0].name() not in NOT_LED_YET:
                raise
        return bool(found)

    eventually(ask, f"a leader of {partition.topic}-{partition.partition}")
    return found[0]


@dataclass
class Reading:
    """All that a client is told of the topics."""

    records: dict[tuple[str, int], list[Content]] = field(default_factory=dict)
    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    by_time: dict[tuple[str, int, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    configs: dict[str, dict[str, str | None]] = field(default_factory=dict)


class Site:
    """The stock client's view of one running broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topics(self) -> None:
        """Make them, and wait until they are led."""
        for future in self.admin.create_topics(topics(), operation_timeout=LONG).values():
            future.result()

        def all_led() -> bool:
            found = self.admin.list_topics(timeout=SHORT).topics
            return all(
                topic.topic in found
                and len(found[topic.topic].partitions) == topic.num_partitions
                and all(partition.leader == 1 for partition in found[topic.topic].partitions.values())
                for topic in topics()
            )

        eventually(all_led, "leaders")

    def producer(self, **options: Any) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, **options})

    def write(self, part: int) -> None:
        """Some of everything; ``part`` makes it different from what was written before."""
        when = BASE_TIME + part * 1_000_000
        for codec in CODECS:
            producer = self.producer(**{"compression.type": codec, "enable.idempotence": True})
            for i in range(2000):
                producer.produce(
                    f"codec-{codec}",
                    key=b"key-%d-%d" % (part, i) if i % 7 else None,
                    value=(b"value-%d-%d " % (part, i)) * (i % 23) if i % 11 else None,
                    headers=[("n", b"%d" % i), ("null", None)] if i % 5 == 0 else None,
                    timestamp=when + i * 10,
                    partition=0,
                )
            self._flush(producer)
        producer = self.producer(**{"enable.idempotence": True, "batch.num.messages": 20})
        for i in range(3000):
            producer.produce("segments", value=b"%d-%d-" % (part, i) + b"x" * 90, partition=i % 2, timestamp=when + i)
        for i in range(1500):
            producer.produce("append-time", value=b"%d-%d-" % (part, i) + b"y" * 60, partition=0, timestamp=12345)
        for i in range(1500):
            producer.produce("trimmed", value=b"%d-%d-" % (part, i) + b"z" * 60, partition=0, timestamp=when + i)
        self._flush(producer)
        for topic, codec in (("compacted", "none"), ("compacted-zstd", "zstd")):
            options = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 50}
            producer = self.producer(**options)
            for i in range(3000):
                producer.produce(
                    topic,
                    key=b"key-%d" % (i * 31 % 97),
                    value=None if i % 13 == 0 else b"value-%d-%d-" % (part, i) + b"v" * 50,
                    headers=[("i", b"%d" % i)] if i % 3 == 0 else None,
                    timestamp=when + i,
                    partition=0,
                )
                if i % 100 == 99:
                    self._flush(producer)
            self._flush(producer)
        self._transactions(part, when)
        self._commit(part)
        future = self.admin.delete_records([TopicPartition("trimmed", 0, 700 + 900 * part)])
        for result in future.values():
            result.result()

    def _flush(self, producer: Producer) -> None:
        assert producer.flush(LONG) == 0, "records were not acknowledged in time"

    def _transactions(self, part: int, when: int) -> None:
        for number, commit in enumerate((True, False, True, False, False, True)):
            producer = self.producer(**{"transactional.id": f"txn-{number % 2}", "batch.num.messages": 10})
            producer.init_transactions(LONG)
            producer.begin_transaction()
            for i in range(120):
                producer.produce(
                    "transactions",
                    key=b"%d" % i,
                    value=b"%s-%d-%d" % (b"committed" if commit else b"aborted", part, number) + b"t" * 40,
                    timestamp=when + i,
                    partition=0,
                )
            self._flush(producer)
            if commit:
                producer.commit_transaction(LONG)
            else:
                producer.abort_transaction(LONG)
            await_ended(self._bootstrap, f"txn-{number % 2}")

    def _commit(self, part: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        offsets = [
            TopicPartition(f"codec-{codec}", 0, 100 * (part + 1) + i, metadata=f"m{part}")
            for i, codec in enumerate(CODECS)
        ]
        offsets.append(TopicPartition("segments", 1, 77 + part))

        def commit() -> bool:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                if error.args[0].retriable() or error.args[0].name() in NOT_YET:
                    return False
                raise
            return True

        eventually(commit, "the group's coordinator")
        consumer.close()

    def partitions(self) -> Iterable[tuple[str, int]]:
        """Those of :func:`topics`."""
        return [(topic.topic, number) for topic in topics() for number in range(topic.num_partitions)]

    def read_partition(self, topic: str, partition: int, *, isolation: str = "read_committed") -> list[Content]:
        """Every record, from the log start to the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
            }
        )
        low, _ = bounds(consumer, TopicPartition(topic, partition))
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[Content] = []
        deadline = time.monotonic() + LONG
        while True:
            assert time.monotonic() < deadline, f"{topic}-{partition} could not be read to its end"
            messages = consumer.consume(1000, timeout=0.5)
            for message in messages:
                error = message.error()
                if error is None:
                    headers: Any = message.headers() or ()
                    offset = message.offset()
                    assert offset is not None
                    found.append((offset, message.timestamp(), message.key(), message.value(), tuple(headers)))
                elif error.name() == "_PARTITION_EOF":
                    consumer.close()
                    return found
                else:
                    raise KafkaException(error)

    def read(self) -> Reading:
        """Everything."""
        reading = Reading()
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "asker"})
        for topic, partition in self.partitions():
            reading.records[topic, partition] = self.read_partition(topic, partition)
            asked = TopicPartition(topic, partition)
            low, high = bounds(consumer, asked)
            reading.bounds[topic, partition] = low, high
            if topic not in NOT_BY_TIME:
                for shift in (0, 5, 1234, 10_000, 1_000_500, 2_000_000):
                    (answer,) = consumer.offsets_for_times(
                        [TopicPartition(topic, partition, BASE_TIME + shift)], timeout=LONG
                    )
                    offset = high if answer.offset == OFFSET_END else answer.offset
                    reading.by_time[topic, partition, shift] = offset
        consumer.close()
        eventually(lambda: self._read_committed(reading), "the group's coordinator")
        return reading

    def _read_committed(self, reading: Reading) -> bool:
        asked = ConsumerGroupTopicPartitions(GROUP)
        [future] = self.admin.list_consumer_group_offsets([asked], request_timeout=LONG).values()
        try:
            told = future.result().topic_partitions
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].name() in NOT_YET:
                return False
            raise
        reading.committed = {(each.topic, each.partition): each.offset for each in told}
        return True
