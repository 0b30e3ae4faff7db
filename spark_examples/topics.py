"""Topics and what is put into them: creating, tables as records, producing. Nothing here knows Spark."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_examples.console import Progress

PARTITIONS = 6

LONGEST_WAIT = 0.05
"""Seconds after which a waiting producer looks after its deliveries, and whether it shall stop."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to be produced; the timestamp is in ms since 1970, a null value is a tombstone."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, str | bytes | None], ...] = ()


def _admin(bootstrap: str) -> AdminClient:
    # Warnings and worse: at the level of notes, the client tells of its own clearing up.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})


def create_topic(
    bootstrap: str, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
) -> None:
    """Creates a topic that keeps event times of 2013. Raises KafkaException, also when it exists.

    `retention.ms=-1`, because with the default of a week the first segment would be dropped as soon as it rolled. With
    the default replicas of the cluster: a table outlives a node where any topic does.
    """
    admin = _admin(bootstrap)
    configs = {"retention.ms": "-1", **(config or {})}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=configs)
    admin.create_topics([new], operation_timeout=30)[topic].result(60)


def json_lines(frame: Any) -> Iterator[str]:
    """Each row of a pandas DataFrame as a JSON object. Whole numbers stay whole and absent values become null."""
    # Columns with gaps are floats in pandas; the nullable integer type writes 2 and null, not 2.0 and NaN.
    floats = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    whole = [name for name in floats if (frame[name].dropna() % 1 == 0).all()]
    frame = frame.astype(dict.fromkeys(whole, "Int64"))
    for start in range(0, len(frame), 20_000):  # in slices, so that the JSON text of all is never in memory at once
        part = frame.iloc[start : start + 20_000]
        if len(whole) == len(floats):
            yield from part.to_json(orient="records", lines=True).splitlines()
        else:  # pandas rounds to 15 digits; Python's own JSON keeps every bit of a float
            rows = part.astype(object).where(part.notna(), None).to_dict(orient="records")
            yield from (json.dumps(row, default=_plain) for row in rows)


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's own number."""
    return value.item()


class Sender:
    """Produces records and counts those that are acknowledged.

    `on_wait` is called with that count whenever deliveries are waited for; what it raises ends the call. Each call
    raises KafkaException once a record has failed.
    """

    def __init__(self, bootstrap: str, *, linger_ms: int, on_wait: Callable[[int], object]) -> None:
        self.acknowledged = 0
        self._failures: list[KafkaError] = []
        self._on_wait = on_wait
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                # Or records that have to be sent again come after later ones: a new topic's leader may need a moment.
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "compression.type": "lz4",
            }
        )

    def send(self, topic: str, record: Record) -> None:
        """Hands a record over; waits while the client's queue is full."""
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),  # the client refuses None for "no headers" and takes an empty list
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                self.wait(LONGEST_WAIT)

    def send_all(self, topic: str, records: Iterable[Record]) -> None:
        """Hands all of them over, looks after deliveries now and then, and waits until every one is acknowledged."""
        for number, record in enumerate(records):
            self.send(topic, record)
            if number % 1_000 == 0:
                self.wait()
        self.flush()

    def wait(self, seconds: float = 0) -> None:
        """Lets deliveries come in, for so many seconds at most."""
        self._producer.poll(seconds)
        self._on_wait(self.acknowledged)
        self._check()

    def flush(self) -> None:
        """Waits until every record is acknowledged."""
        while self._producer.flush(LONGEST_WAIT):
            self._on_wait(self.acknowledged)
            self._check()
        self.wait()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._failures.append(error)

    def _check(self) -> None:
        if self._failures:
            raise KafkaException(self._failures[0])


def produce_records(
    bootstrap: str, topic: str, records: Iterable[Record], *, total: int, what: str = ""
) -> tuple[int, float]:
    """Produces the records; returns (acknowledged records, seconds). Raises KafkaException if any record failed.

    `total` and `what` are for the progress line only.
    """
    progress = Progress(what or f"produce to {topic}", total)
    sender = Sender(bootstrap, linger_ms=20, on_wait=progress.update)
    started = time.monotonic()
    try:
        sender.send_all(topic, records)
    finally:
        progress.finish(sender.acknowledged)
    return sender.acknowledged, time.monotonic() - started


def provide_topic(
    bootstrap: str,
    topic: str,
    fill: Callable[[], int],
    *,
    partitions: int = PARTITIONS,
    config: Mapping[str, str] | None = None,
) -> int:
    """Sees to it that there is such a topic: a missing one is created and filled. Returns what `fill` does.

    A topic that could not be filled is deleted again, so that the next run does not take it for whole.
    """
    try:
        create_topic(bootstrap, topic, partitions, config)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return 0
    try:
        return fill()
    except BaseException:
        delete_topic(bootstrap, topic)
        raise


def topic_exists(bootstrap: str, topic: str) -> bool:
    """Whether the cluster has the topic; asking does not create it. Raises KafkaException."""
    return topic in _admin(bootstrap).list_topics(timeout=30).topics


def topic_has_records(bootstrap: str, topic: str) -> bool:
    """Whether the log of any partition is longer than nothing. Raises KafkaException, also when there is no topic."""
    with reader(bootstrap, topic) as (consumer, partitions):
        spans = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions]
    return any(high > low for low, high in spans)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Deletes the topic. Raises KafkaException, also when there is none."""
    admin = _admin(bootstrap)  # to be kept until the answer is there
    admin.delete_topics([topic], operation_timeout=30)[topic].result(60)


@contextlib.contextmanager
def reader(bootstrap: str, topic: str, **config: Any) -> Iterator[tuple[Consumer, list[int]]]:
    """A stock consumer at the beginning of every partition, and the partitions. Raises KafkaException.

    Without a group: partitions are assigned and nothing is committed, though a group id is asked for.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"reader-{uuid.uuid4()}", "enable.auto.commit": False, **config}
    )
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        partitions = sorted(found.partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        yield consumer, partitions
    finally:
        consumer.close()


def read_records(bootstrap: str, topic: str) -> Iterator[Message]:
    """All records that the topic has now, each partition in the order of offsets. Raises KafkaException."""
    with reader(bootstrap, topic, **{"enable.partition.eof": True}) as (consumer, partitions):
        unread = set(partitions)
        while unread:
            for message in consumer.consume(5_000, 0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)


def last_values(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The topic as a table: the last value of each key; a key whose last value is a tombstone is not in it.

    A key's records lie in one partition, so that the order of offsets is the order of its changes.
    """
    values: dict[bytes, bytes] = {}
    for message in read_records(bootstrap, topic):
        key, value = message.key() or b"", message.value()
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values
