"""A client of another kind (confluent-kafka), which makes topics, writes and reads for the tests of programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConsumerGroupDescription, ResourceType
from confluent_kafka.cimpl import NewTopic

from compat_tests.works_with.running import RunningError, wait_until
from tests.patience import SHORT

Bytes = bytes | str | None
T = TypeVar("T")

REQUEST_SECONDS = 15
"""Seconds for which an administrator asks about a group before another is tried."""
_PASSING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors while a group has no coordinator."""


def create_topics(bootstrap: str, topics: Mapping[str, int], **config: str) -> None:
    """Create topics with so many partitions each, and return once they have leaders.

    ``config`` has their properties, with underscores for dots.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics(
        [NewTopic(name, count, config=settings) for name, count in topics.items()]
    ).values():
        future.result()

    def have_leaders() -> bool:
        known = admin.list_topics(timeout=SHORT).topics
        return all(
            name in known
            and len(known[name].partitions) == count
            and all(each.leader >= 0 for each in known[name].partitions.values())
            for name, count in topics.items()
        )

    wait_until(have_leaders, f"leaders of {', '.join(topics)}")


def topics_of(bootstrap: str) -> dict[str, int]:
    """The topics that there are, with their numbers of partitions."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SHORT).topics
    return {name: len(topic.partitions) for name, topic in known.items()}


def replicas_of(bootstrap: str, topic: str) -> int:
    """The number of replicas of each partition of a topic; the least, if they differ."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SHORT).topics
    return min(len(partition.replicas) for partition in known[topic].partitions.values())


def config_of(bootstrap: str, topic: str) -> dict[str, str]:
    """The properties of a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: str(entry.value) for name, entry in future.result().items()}


def write(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[Bytes, Bytes]],
    timestamp_ms: Callable[[int], int] | None = None,
    **settings: str | int | bool,
) -> None:
    """Write keys and values, each acknowledged by all replicas in sync. `RunningError` if one is not.

    ``timestamp_ms`` gives the n-th record's time, which is now by default; ``settings`` are the producer's.
    """
    failed: list[str] = []

    def note(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    config = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **config})
    for number, (key, value) in enumerate(records):
        time_ms = timestamp_ms(number) if timestamp_ms is not None else 0
        while True:
            try:
                producer.produce(topic, value, key=key, on_delivery=note, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(SHORT)
    if left or failed:
        raise RunningError(f"{topic}: {left} records are not acknowledged, {len(failed)} failed: {failed[:3]}")


@contextmanager
def reader(bootstrap: str, *topics: str, tells_ends: bool = False) -> Iterator[Consumer]:
    """A consumer at the beginning of all partitions, which reads what is committed and is in no group.

    It gives an error at the end of each partition if it `tells_ends`.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": tells_ends,
        }
    )
    known = consumer.list_topics(timeout=SHORT).topics
    consumer.assign([TopicPartition(name, number, 0) for name in topics for number in known[name].partitions])
    try:
        yield consumer
    finally:
        consumer.close()


def read_until(
    bootstrap: str, topic: str, is_enough: Callable[[list[Message]], bool], seconds: float = SHORT, more: float = 1
) -> list[Message]:
    """The records of a topic once they are enough, and all that follow within `more` seconds: nothing doubled stays
    unseen. Fewer if they do not come in time: the caller judges."""
    found: list[Message] = []
    end = time.monotonic() + seconds
    enough = False
    with reader(bootstrap, topic) as consumer:
        while time.monotonic() < end:
            for message in consumer.consume(10_000, 0.2):
                if message.error() is not None:
                    raise RunningError(f"{topic}: {message.error()}")
                found.append(message)
            if not enough and is_enough(found):
                enough, end = True, time.monotonic() + more
    return found


def read(bootstrap: str, topic: str, count: int, seconds: float = SHORT, more: float = 1) -> list[Message]:
    """The records of a topic, once there are so many; see `read_until`."""
    return read_until(bootstrap, topic, lambda found: len(found) >= count, seconds, more)


def read_all(bootstrap: str, topic: str, seconds: float = SHORT) -> list[Message]:
    """The records that a topic has now. `RunningError` if its ends are not reached in time."""
    found: list[Message] = []
    end = time.monotonic() + seconds
    with reader(bootstrap, topic, tells_ends=True) as consumer:
        left = {each.partition for each in consumer.assignment()}
        while left:
            message = consumer.poll(0.2)
            error = None if message is None else message.error()
            if message is None:
                if time.monotonic() > end:
                    raise RunningError(f"{topic}: the ends of {left} are not reached within {seconds:.0f} s")
            elif error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place_of(message)[0])
            else:
                raise RunningError(f"{topic}: {error}")
    return found


def place_of(message: Message) -> tuple[int, int]:
    """The partition and the offset of a record."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def text_of(value: Bytes) -> str:
    """A key or value as text; null is empty."""
    return value.decode() if isinstance(value, bytes) else value or ""


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The offsets that a group has committed.

    A consumer that does not join asks for them. librdkafka's administrator (2.16) ends the process if its question has
    timed out when the coordinator is found, which takes longer while the first group makes the topic of offsets.
    """
    found: list[TopicPartition] = []

    def is_told() -> bool:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            topics = consumer.list_topics(timeout=SHORT).topics
            names = [name for name in topics if not name.startswith("__")]
            wanted = [TopicPartition(name, number) for name in names for number in topics[name].partitions]
            found[:] = consumer.committed(wanted, timeout=REQUEST_SECONDS) if wanted else []
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise
            return False
        finally:
            consumer.close()
        return all(each.error is None for each in found)

    wait_until(is_told, f"what {group} has committed", 120)
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def end_offsets(bootstrap: str, topic: str) -> dict[tuple[str, int], int]:
    """The offset of each partition's end."""
    with reader(bootstrap, topic) as consumer:
        return {
            (each.topic, each.partition): consumer.get_watermark_offsets(each, timeout=SHORT)[1]
            for each in consumer.assignment()
        }


def await_no_lag(bootstrap: str, group: str, topic: str, seconds: float = SHORT) -> None:
    """Return once a group has committed the end of each partition that has records. `RunningError` if not in time."""

    def is_at_end() -> bool:
        ends = {partition: end for partition, end in end_offsets(bootstrap, topic).items() if end}
        done = committed(bootstrap, group)
        return all(done.get(partition) == end for partition, end in ends.items())

    wait_until(is_at_end, f"group {group} at the end of {topic}", seconds)


def members(bootstrap: str, group: str) -> dict[str, int]:
    """The members of a group, each with the number of its partitions."""
    return {each.member_id: len(each.assignment.topic_partitions) for each in _described(bootstrap, group).members}


def coordinator(bootstrap: str, group: str) -> int:
    """The node that coordinates a group."""
    return int(_described(bootstrap, group).coordinator.id)


def _described(bootstrap: str, group: str) -> ConsumerGroupDescription:
    """The description of a group by its coordinator."""

    def ask(admin: AdminClient) -> Future[ConsumerGroupDescription]:
        return admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group]

    return _of_group(bootstrap, ask)


def _of_group(bootstrap: str, ask: Callable[[AdminClient], Future[T]]) -> T:
    """An answer about a group. `KafkaException` for an error that does not pass, `RunningError` for one that stays.

    The group's coordinator may not be there yet, as the first group of all makes the topic of offsets; nor yet again,
    after its node was lost. A new administrator looks for it anew.
    """
    found: list[T] = []

    def is_told() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap})  # kept until it has its answer
        try:
            found.append(ask(admin).result())
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise
        return bool(found)

    wait_until(is_told, "an answer about a group", 120)
    return found[0]


def leader(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The node that leads a partition."""
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SHORT).topics
    return int(known[topic].partitions[partition].leader)
