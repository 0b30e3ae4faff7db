"""MirrorMaker 2 copies from a cluster of either broker: records, configuration, groups, heartbeats; it is killed
and started again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewPartitions

from compat_tests.brokers import ApacheBroker, Broker, KbrokerBroker
from compat_tests.works_with.connect import java
from compat_tests.works_with.judge import (
    committed,
    config_of,
    create_topics,
    leader,
    place_of,
    read,
    read_all,
    text_of,
    topics_of,
    write,
)
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until
from tests.patience import LONG

pytestmark = pytest.mark.kafka
RECORDS = 3000
LAST = 300
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"

Place = tuple[int, int]
"""A partition and an offset."""


@pytest.fixture(params=["kbroker", "apache"])
def source(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The cluster that is copied, of one node."""
    node = ApacheBroker() if request.param == "apache" else KbrokerBroker()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture
def empty(bootstrap: str) -> str:
    """The cluster that is copied to, without what an earlier copy left."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    old = [name for name in topics_of(bootstrap) if not name.startswith("__")]
    for future in admin.delete_topics(old).values() if old else ():
        future.result()
    wait_until(lambda: not [name for name in topics_of(bootstrap) if not name.startswith("__")], "topics deleted")
    return bootstrap


def orders(begin: int, end: int) -> list[tuple[str, str]]:
    """Records of orders."""
    return [(f"customer {number % 17}", f"order {number}") for number in range(begin, end)]


def by_partition(messages: list[Message]) -> dict[int, list[tuple[object, ...]]]:
    """All that records carry, in the order of each partition."""
    found: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for each in messages:
        found[place_of(each)[0]].append((each.key(), each.value(), each.headers(), each.timestamp()))
    return found


def commit(bootstrap: str, group: str, topic: str, offsets: list[Place]) -> None:
    """Commit offsets as a consumer that has read so far and is gone."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets]

    def is_done() -> bool:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # The first commit of all makes the topic of offsets, whose leader is not the coordinator at once.
            if error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE):
                return False
            raise
        return True

    wait_until(is_done, f"offsets of {group} committed")
    consumer.close()


def half_and_end(messages: list[Message]) -> tuple[list[Place], list[Place]]:
    """The offsets of a group in the middle of each partition, and of one at the end."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for each in messages:
        partition, offset = place_of(each)
        offsets[partition].append(offset)
    half = [(partition, found[len(found) // 2]) for partition, found in offsets.items()]
    return half, [(partition, found[-1] + 1) for partition, found in offsets.items()]


def values_from(messages: list[Message], offsets: dict[tuple[str, int], int]) -> dict[int, list[str]]:
    """The records that a group at these offsets of a topic has still to read, in each partition."""
    begins = {partition: offset for (_, partition), offset in offsets.items()}
    left: dict[int, list[str]] = defaultdict(list)
    for each in messages:
        partition, offset = place_of(each)
        if offset >= begins.get(partition, 0):
            left[partition].append(text_of(each.value()))
    return left


def set_config(bootstrap: str, topic: str, **config: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in config.items():
        resource.add_incremental_config(
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def test_copies_a_cluster(
    program: Program, source: Broker, broker: Broker, empty: str, tmp_path: Path, seen: Callable[..., None]
) -> None:
    east, west = source.bootstrap, empty
    create_topics(east, {"orders": 3, "private": 1}, retention_ms="86400000", cleanup_policy="compact,delete")
    write(east, "orders", orders(0, RECORDS // 2), compression_type="zstd")
    half, _ = half_and_end(read_all(east, "orders"))
    commit(east, "shipping", "orders", half)
    command = java(program, MIRROR_MAKER, program.file("mm2.properties"))
    environment = {"EAST": east, "WEST": west}

    with Running(command, tmp_path, "mirrormaker", environment) as mirror_maker:
        mirror_maker.until(lambda: "east.orders" in topics_of(west), "to create the topic", 120)
        read(west, "east.orders", RECORDS // 4)
        write(east, "orders", orders(RECORDS // 2, RECORDS * 3 // 4), compression_type="lz4")
        mirror_maker.kill()
    write(east, "orders", orders(RECORDS * 3 // 4, RECORDS - 2 * LAST), compression_type="gzip")
    with Running(command, tmp_path, "mirrormaker", environment) as mirror_maker:
        with without_a_node(broker, leader(west, "east.orders")):
            write(east, "orders", orders(RECORDS - 2 * LAST, RECORDS - LAST), compression_type="snappy")
            read(west, "east.orders", RECORDS - LAST, seconds=LONG)
        write(east, "orders", orders(RECORDS - LAST, RECORDS))
        copied = read(west, "east.orders", RECORDS, seconds=LONG)
        written = read_all(east, "orders")
        assert by_partition(copied) == by_partition(written)

        # MirrorMaker translates what is later than its own last start.
        last = [message for message in written if int(text_of(message.value()).split()[1]) >= RECORDS - LAST]
        half, end = half_and_end(last)
        commit(east, "billing-behind", "orders", half)
        commit(east, "billing-done", "orders", end)
        mirror_maker.until(lambda: len(committed(west, "billing-done")) == 3, "to translate the group", 60)
        mirror_maker.until(lambda: len(committed(west, "billing-behind")) == 3, "to translate the group", 60)
        assert values_from(copied, committed(west, "billing-done")) == {}
        left = values_from(written, committed(east, "billing-behind"))
        left_in_copy = values_from(copied, committed(west, "billing-behind"))
        for partition, values in left.items():
            assert left_in_copy[partition][-len(values) :] == values
        assert not committed(west, "shipping")

        set_config(east, "orders", retention_ms="7200000")
        admin = AdminClient({"bootstrap.servers": east})
        admin.create_partitions([NewPartitions("orders", 5)])["orders"].result()
        mirror_maker.until(lambda: config_of(west, "east.orders")["retention.ms"] == "7200000", "to copy the property")
        mirror_maker.until(lambda: topics_of(west)["east.orders"] == 5, "to add the partitions")
        assert config_of(west, "east.orders")["cleanup.policy"] == "compact,delete"

        assert len(read(west, "east.heartbeats", 5)) >= 5
        assert len(read(west, "east.checkpoints.internal", 6)) >= 6
        assert "east.private" not in topics_of(west)

    total = sum(map(len, left.values()))
    more = sum(map(len, left_in_copy.values())) - total
    name = "Apache Kafka 4.4.0" if source.name == "apache" else "kbroker"
    seen(
        f"from {name}: {RECORDS} records (zstd, lz4, gzip, snappy) are copied once each, in order, with keys and "
        "timestamps, though MirrorMaker and a node were killed",
        f"from {name}: a group at the end has nothing to read in the copy; one with {total} records to read has these "
        f"and {more} before them",
        f"from {name}: a changed retention.ms and two new partitions arrive, and so do heartbeats and checkpoints",
    )
