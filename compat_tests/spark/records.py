"""Records for these tests: produced by a stock client, read by Spark, compared by the number each of them bears."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from compat_tests.case import await_everywhere, await_gone
from tests.patience import LONG

BASE_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z

IMPATIENT = {"kafkaConsumer__pollTimeoutMs": 15_000}
"""For what is waited for in vain, two minutes otherwise; what is there has to come within it, by a new connection."""


def admin(bootstrap: str) -> AdminClient:
    """A stock admin client."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, topic: str, partitions: int, *, replicas: int = -1, **config: object) -> str:
    """A topic that keeps records of any age, with the default replicas of the cluster. Further configs with underscores
    for dots. Returns its name."""
    configs = {"retention_ms": "-1", **config}
    new = NewTopic(
        topic, partitions, replicas, config={name.replace("_", "."): str(value) for name, value in configs.items()}
    )
    client = admin(bootstrap)
    client.create_topics([new])[topic].result(LONG)
    await_everywhere(bootstrap, topic, partitions)  # Spark asks any node, and gives up where one does not know it yet
    return topic


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic, and wait until the broker says so."""
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(LONG)
    await_gone(bootstrap, topic)


def set_retention(bootstrap: str, topic: str, milliseconds: int) -> None:
    """Change ``retention.ms``."""
    client = admin(bootstrap)
    entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(LONG)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Have a topic of more partitions."""
    client = admin(bootstrap)
    client.create_partitions([NewPartitions(topic, total)])[topic].result(LONG)
    await_everywhere(bootstrap, topic, total)


def delete_records(bootstrap: str, topic: str, before: Mapping[int, int]) -> None:
    """DeleteRecords."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    client = admin(bootstrap)
    for future in client.delete_records(wanted).values():
        future.result(LONG)


def produce(bootstrap: str, topic: str, partitions: int, records: int, *, first: int = 0, **config: Any) -> None:
    """Record n has key k<n>, value v<n>, header n=<n>, timestamp BASE_MS + n s, and lies in partition n modulo."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for n in range(first, first + records):
        producer.produce(
            topic,
            f"v{n}",
            f"k{n}",
            partition=n % partitions,
            timestamp=BASE_MS + n * 1_000,
            headers=[("n", str(n).encode()), ("none", None)],
        )
    assert producer.flush(LONG) == 0


def read(spark: Any, bootstrap: str, **options: object) -> Any:
    """A batch of the source; dots of option names as double underscores."""
    return with_options(spark.read.format("kafka"), bootstrap, options).load()


def read_stream(spark: Any, bootstrap: str, **options: object) -> Any:
    """A stream of the source, from the earliest offsets unless told otherwise."""
    reader = spark.readStream.format("kafka").option("startingOffsets", "earliest")
    return with_options(reader, bootstrap, options).load()


def with_options(builder: Any, bootstrap: str, options: Mapping[str, object]) -> Any:
    """A reader or writer that knows the broker."""
    builder = builder.option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        builder = builder.option(name.replace("__", "."), str(value))
    return builder


def numbers(rows: Any) -> list[int]:
    """The numbers of the records in a DataFrame, ascending; a value is a letter and its record's number."""
    return sorted(int(row["value"][1:]) for row in rows.select("value").collect())


def offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets by partition as the JSON of the source's option ``startingOffsets``."""
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


class Collected:
    """The output of a streaming query: the numbers of its records, by micro-batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self._changed = threading.Condition()

    def take(self, frame: Any, batch_id: int) -> None:
        """For ``foreachBatch``. A batch that is delivered again replaces itself, as a sink has to do it."""
        found = numbers(frame)
        with self._changed:
            self.batches[batch_id] = found
            self._changed.notify_all()

    @property
    def numbers(self) -> list[int]:
        """All of them, with what came twice."""
        return sorted(number for batch in self.batches.values() for number in batch)

    @property
    def sizes(self) -> list[int]:
        """Records of each batch that had any."""
        return [len(batch) for _, batch in sorted(self.batches.items()) if batch]

    def wait_for(self, count: int) -> None:
        """Until so many records were delivered."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.numbers) >= count, LONG), self.batches


@contextlib.contextmanager
def running(stream: Any, checkpoint: Path, collected: Collected, **trigger: Any) -> Iterator[Any]:
    """A query that delivers to ``collected`` (after any error: not stopped but failed)."""
    writer = stream.writeStream.foreachBatch(collected.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**trigger).start() if trigger else writer.start()
    try:
        yield query
    finally:
        query.stop()


def run_available(stream: Any, checkpoint: Path, collected: Collected | None = None) -> Collected:
    """All that is there now, by ``availableNow``."""
    collected = Collected() if collected is None else collected
    with running(stream, checkpoint, collected, availableNow=True) as query:
        assert query.awaitTermination(int(LONG)), "the query did not end"
    return collected
