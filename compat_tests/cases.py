"""The cases, written once and run through every client: what a person relies on when they swap the broker.

A case is a function of a :class:`Context`. Its group and title are the row of the table in docs/compatibility.md;
`needs` are the
abilities that a client must have (see ``client.ALL_FEATURES``), a client without them shows a dash there. Every case
must pass
against Apache Kafka 4.4.0: one that fails there is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from compat_tests.case import CASES as CASES
from compat_tests.case import Case as Case
from compat_tests.case import Context, at_once, await_everywhere, await_gone, case, numbered, refused, settled
from compat_tests.client import EARLIEST, LATEST, MAX_TIMESTAMP, ReadTimeout, Record
from tests.patience import eventually

SOME_TIME = 1_717_000_000_000
"""An afternoon in 2024, far from now, so that a timestamp that was replaced shows."""


def read_all(context: Context, topic: str, records: list[Record], partition: int = 0) -> list[Record]:
    """Read back what was produced and compare contents and offsets."""
    read = context.reader.read(topic, partition, EARLIEST, len(records))
    assert [record.content() for record in read] == [record.content() for record in records]
    assert [record.offset for record in read] == list(range(len(records)))
    return read


def check_offsets(context: Context, offsets: list[int], expected: list[int]) -> None:
    if "produced_offsets" in context.client.features:
        assert offsets == expected


# Topics


@case("Topics", "create, list, describe", {"create_topic", "list_topics"})
def create_topic(context: Context) -> None:
    name = context.name()
    context.client.create_topic(name, partitions=3, replication_factor=context.replicas)
    context.await_topic(name)
    assert name in context.client.list_topics()
    assert context.client.partition_count(name) == 3
    assert context.peer.partition_count(name) == 3


@case("Topics", "metadata of a topic", {"list_topics"})
def topic_metadata(context: Context) -> None:
    name = context.topic(partitions=4)
    assert name in context.client.list_topics()
    assert context.client.partition_count(name) == 4


@case("Topics", "create with configs", {"create_topic", "describe_configs"})
def create_topic_with_configs(context: Context) -> None:
    name = context.name()
    wanted = {"retention.ms": "86400000", "cleanup.policy": "compact"}
    context.client.create_topic(name, configs=wanted, replication_factor=context.replicas)
    context.await_topic(name)
    configs = context.client.describe_configs(name)
    assert configs["retention.ms"] == "86400000"
    assert configs["cleanup.policy"] == "compact"


@case("Topics", "create twice: TOPIC_ALREADY_EXISTS", {"create_topic"})
def create_topic_twice(context: Context) -> None:
    name = context.topic()
    refused("TOPIC_ALREADY_EXISTS", lambda: context.client.create_topic(name))


@case("Topics", "invalid name: INVALID_TOPIC_EXCEPTION", {"create_topic"})
def invalid_topic_name(context: Context) -> None:
    for name in ("no spaces", "ä", "x" * 250, ".."):
        refused("INVALID_TOPIC_EXCEPTION", lambda name=name: context.client.create_topic(name))  # type: ignore[misc]


@case("Topics", "name that collides (a.b, a_b): INVALID_TOPIC_EXCEPTION", {"create_topic"})
def colliding_topic_name(context: Context) -> None:
    name = context.topic("with.dot")
    refused("INVALID_TOPIC_EXCEPTION", lambda: context.client.create_topic(name.replace(".", "_")))


@case("Topics", "unknown or wrong config: INVALID_CONFIG", {"create_topic"})
def invalid_topic_config(context: Context) -> None:
    refused("INVALID_CONFIG", lambda: context.client.create_topic(context.name(), configs={"no.such.config": "1"}))
    refused("INVALID_CONFIG", lambda: context.client.create_topic(context.name(), configs={"retention.ms": "soon"}))


@case("Topics", "too many replicas: INVALID_REPLICATION_FACTOR", {"create_topic"})
def invalid_replication_factor(context: Context) -> None:
    refused("INVALID_REPLICATION_FACTOR", lambda: context.client.create_topic(context.name(), replication_factor=9))


@case("Topics", "delete", {"delete_topic", "list_topics"})
def delete_topic(context: Context) -> None:
    name = context.topic()
    context.peer.produce(name, numbered(3))
    context.client.delete_topic(name)
    eventually(lambda: name not in context.client.list_topics(), f"{name} gone from the topic list")


@case("Topics", "delete an unknown one: UNKNOWN_TOPIC_OR_PARTITION", {"delete_topic"})
def delete_unknown_topic(context: Context) -> None:
    refused("UNKNOWN_TOPIC_OR_PARTITION", lambda: context.client.delete_topic(context.name("never")))


@case("Topics", "delete, create again: empty", {"delete_topic", "create_topic", "list_topics"})
def recreate_topic(context: Context) -> None:
    name = context.topic()
    context.client.produce(name, numbered(5))
    context.client.delete_topic(name)
    eventually(lambda: name not in context.peer.list_topics(), f"{name} gone from the topic list")
    await_gone(context.broker.bootstrap, name)  # or a node that still has it would take what is written next
    context.client.create_topic(name, replication_factor=context.replicas)
    context.await_topic(name)
    records = numbered(2, size=30)
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Topics", "add partitions", {"create_partitions"})
def create_partitions(context: Context) -> None:
    name = context.topic(partitions=1)
    context.client.create_partitions(name, 3)
    eventually(lambda: context.client.partition_count(name) == 3, f"three partitions of {name}")
    await_everywhere(context.broker.bootstrap, name, 3)
    refused("INVALID_PARTITIONS", lambda: context.client.create_partitions(name, 2))
    context.client.produce(name, [Record(b"to the new one", partition=2)])
    assert context.reader.read(name, 2)[0].value == b"to the new one"


@case("Topics", "auto-create on produce", {"auto_create_topic"})
def auto_create_topic(context: Context) -> None:
    name = context.name("auto")
    records = numbered(3)
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Topics", "read an unknown one: UNKNOWN_TOPIC_OR_PARTITION", {"read", "unknown_topic_error"})
def read_unknown_topic(context: Context) -> None:
    name = context.name("never")
    refused("UNKNOWN_TOPIC_OR_PARTITION", lambda: context.client.read(name))
    if "no_auto_create" in context.client.features:
        assert name not in context.peer.list_topics()


@case("Topics", "delete records", {"delete_records", "list_offsets"})
def delete_records(context: Context) -> None:
    name = context.topic()
    context.client.produce(name, numbered(10), linger_ms=0)
    context.client.delete_records(name, 0, 4)
    assert context.client.list_offset(name, 0, EARLIEST) == 4
    assert context.client.list_offset(name, 0, LATEST) == 10
    assert context.reader.read(name, 0, EARLIEST)[0].offset == 4
    refused("OFFSET_OUT_OF_RANGE", lambda: context.client.delete_records(name, 0, 11))


# Configs and cluster


@case("Configs", "describe: all with defaults", {"describe_configs"})
def describe_configs(context: Context) -> None:
    name = context.topic(retention_ms="1234567")
    configs = context.client.describe_configs(name)
    assert configs["retention.ms"] == "1234567"
    assert configs["cleanup.policy"] == "delete"
    assert configs["max.message.bytes"] == "1048588"
    assert configs["segment.bytes"] == "1073741824"
    assert configs["compression.type"] == "producer"
    assert configs["message.timestamp.type"] == "CreateTime"


@case("Configs", "alter one, put it back", {"describe_configs", "alter_configs"})
def alter_configs(context: Context) -> None:
    name = context.topic(retention_ms="1234567")

    def value(config: str) -> str | None:
        return context.client.describe_configs(name)[config]

    context.client.alter_configs(name, {"max.message.bytes": "2000"})
    eventually(lambda: value("max.message.bytes") == "2000", "max.message.bytes to change")
    assert value("retention.ms") == "1234567"
    # Whoever leads the partition may hear of it a moment after the one that was asked.
    settled(lambda: refused("MESSAGE_TOO_LARGE", lambda: context.peer.produce(name, [Record(b"x" * 3000)])))
    context.client.alter_configs(name, {"max.message.bytes": None})
    eventually(lambda: value("max.message.bytes") == "1048588", "max.message.bytes to go back")
    settled(lambda: context.peer.produce(name, [Record(b"x" * 3000)]))


@case("Configs", "alter to a wrong value: INVALID_CONFIG", {"alter_configs"})
def alter_configs_wrong(context: Context) -> None:
    name = context.topic()
    refused("INVALID_CONFIG", lambda: context.client.alter_configs(name, {"retention.ms": "soon"}))
    refused("INVALID_CONFIG", lambda: context.client.alter_configs(name, {"cleanup.policy": "burn"}))


@case("Configs", "describe cluster", {"describe_cluster"})
def describe_cluster(context: Context) -> None:
    def described() -> None:
        cluster = context.client.describe_cluster()
        assert cluster.cluster_id is None or len(cluster.cluster_id) >= 20
        assert sorted(f"{broker[1]}:{broker[2]}" for broker in cluster.brokers) == sorted(
            context.broker.bootstrap.split(",")
        )
        assert cluster.controller_id in [broker[0] for broker in cluster.brokers]
        peer = context.peer.describe_cluster()
        assert sorted(cluster.brokers) == sorted(peer.brokers)

    settled(described)  # one of several may be about to come back


# Producing


def _acks(context: Context, acks: int) -> None:
    name = context.topic()
    records = numbered(20)
    offsets = context.client.produce(name, records, acks=acks)
    if acks:
        check_offsets(context, offsets, list(range(20)))
    read_all(context, name, records)


@case("Producing", "acks=0")
def acks_none(context: Context) -> None:
    _acks(context, 0)


@case("Producing", "acks=1")
def acks_leader(context: Context) -> None:
    _acks(context, 1)


@case("Producing", "acks=all")
def acks_all(context: Context) -> None:
    _acks(context, -1)


@case("Producing", "idempotent producer", {"idempotent_producer"})
def idempotent_producer(context: Context) -> None:
    name = context.topic(partitions=2)
    first = numbered(200)
    context.client.produce(name, first, idempotent=True)
    second = numbered(50, size=40)
    offsets = context.client.produce(name, second, idempotent=True)
    check_offsets(context, offsets, list(range(200, 250)))
    read_all(context, name, first + second)


@case("Producing", "keys, empty and null keys and values")
def nulls(context: Context) -> None:
    name = context.topic()
    records = [
        Record(b"both", key=b"a key"),
        Record(b"no key", key=None),
        Record(b"empty key", key=b""),
        Record(None, key=b"tombstone"),
        Record(b"", key=b"empty value"),
    ]
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Producing", "headers")
def headers(context: Context) -> None:
    name = context.topic()
    records = [
        Record(b"one", key=b"k", headers=(("trace", b"abc"),)),
        Record(b"two", key=b"k", headers=(("trace", b"def"), ("content-type", b"text/plain"))),
        Record(b"none", key=b"k"),
    ]
    context.client.produce(name, records)
    read_all(context, name, records)


@case(
    "Producing", "repeated header names, empty and null header values", {"null_header_value", "duplicate_header_keys"}
)
def odd_headers(context: Context) -> None:
    name = context.topic()
    records = [Record(b"one", key=b"k", headers=(("a", b"1"), ("b", None), ("a", b"2"), ("c", b"")))]
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Producing", "timestamps: CreateTime", {"record_timestamps", "produced_timestamps"})
def create_time(context: Context) -> None:
    name = context.topic(retention_ms="-1")
    records = [Record(b"v", key=b"k", timestamp=SOME_TIME + index * 1000) for index in range(5)]
    context.client.produce(name, records)
    read = read_all(context, name, records)
    assert [record.timestamp for record in read] == [record.timestamp for record in records]
    if "timestamp_type" in context.reader.features:
        assert {record.timestamp_type for record in read} == {"CreateTime"}


@case("Producing", "timestamps: LogAppendTime", {"record_timestamps"})
def log_append_time(context: Context) -> None:
    name = context.topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    old = SOME_TIME if "produced_timestamps" in context.client.features else None
    records = [Record(b"v", key=b"k", timestamp=old) for _ in range(3)]
    context.client.produce(name, records)
    read = read_all(context, name, records)
    after = int(time.time() * 1000)
    assert all(record.timestamp is not None and before <= record.timestamp <= after for record in read)
    if "timestamp_type" in context.reader.features:
        assert {record.timestamp_type for record in read} == {"LogAppendTime"}


@case("Producing", "several partitions")
def several_partitions(context: Context) -> None:
    name = context.topic(partitions=5)
    records = [Record(f"{index}".encode(), key=b"k", partition=index % 5) for index in range(50)]
    context.client.produce(name, records)
    for partition in range(5):
        read_all(context, name, [record for record in records if record.partition == partition], partition)


@case("Producing", "large messages (900 kB)")
def large_message(context: Context) -> None:
    name = context.topic()
    records = [Record(bytes([65 + index]) * 900_000, key=b"big") for index in range(3)]
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Producing", "5 MB message where max.message.bytes allows it")
def larger_message(context: Context) -> None:
    name = context.topic(max_message_bytes="6000000")
    records = [Record(b"L" * 5_000_000, key=b"big")]
    context.client.produce(name, records, max_request_size=7_000_000)
    read = context.reader.read(name, max_bytes=8_000_000, max_partition_bytes=8_000_000)
    assert [record.content() for record in read] == [record.content() for record in records]


@case("Producing", "too large: MESSAGE_TOO_LARGE")
def message_too_large(context: Context) -> None:
    name = context.topic()
    refused(
        "MESSAGE_TOO_LARGE",
        lambda: context.client.produce(name, [Record(b"x" * 2_000_000)], max_request_size=3_000_000),
    )
    records = [Record(b"small", key=b"k")]
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Producing", "null key to a compacted topic: INVALID_RECORD")
def null_key_compacted(context: Context) -> None:
    name = context.topic(cleanup_policy="compact")
    # A client that is older than this error code calls it unknown.
    refused(("INVALID_RECORD", "UNKNOWN_SERVER_ERROR"), lambda: context.client.produce(name, [Record(b"no key")]))
    records = [Record(b"with key", key=b"k")]
    context.client.produce(name, records)
    read_all(context, name, records)


@case("Producing", "timestamp too far ahead: INVALID_TIMESTAMP", {"produced_timestamps"})
def timestamp_too_far_ahead(context: Context) -> None:
    name = context.topic()
    far = int(time.time() * 1000) + 3 * 86_400_000
    refused("INVALID_TIMESTAMP", lambda: context.client.produce(name, [Record(b"v", key=b"k", timestamp=far)]))


def _codec(codec: str) -> Callable[[Context], None]:
    def run(context: Context) -> None:
        name = context.topic(codec)
        records = numbered(300, size=400)
        context.client.produce(name, records, compression=codec, linger_ms=50)
        read_all(context, name, records)

    run.__name__ = f"codec_{codec}"
    return run


for _name in ("gzip", "snappy", "lz4", "zstd"):
    case("Compression", _name, {f"codec_{_name}"})(_codec(_name))


@case("Compression", "broker recompresses (compression.type=gzip)", {"list_topics"})
def broker_compression(context: Context) -> None:
    name = context.topic(compression_type="gzip")
    records = numbered(100, size=200)
    context.client.produce(name, records)
    read_all(context, name, records)


# Reading


@case("Reading", "from the earliest, an offset, the latest", {"read"})
def seek(context: Context) -> None:
    name = context.topic()
    records = numbered(30)
    context.peer.produce(name, records)
    assert context.client.read(name, 0, EARLIEST)[0].offset == 0
    read = context.client.read(name, 0, 17, 5)
    assert [record.offset for record in read] == [17, 18, 19, 20, 21]
    assert [record.content() for record in read] == [record.content() for record in records[17:22]]
    with pytest.raises(ReadTimeout) as raised:
        context.client.read(name, 0, LATEST, timeout=1.5)
    assert raised.value.records == []


@case("Reading", "from an offset inside a compressed batch", {"read", "codec_gzip"})
def mid_batch(context: Context) -> None:
    name = context.topic()
    records = numbered(100)
    # One long linger: the peer sends few batches, so almost every offset is inside one.
    context.peer.produce(name, records, compression="gzip", linger_ms=200)
    for offset in (1, 37, 98, 99):
        read = context.client.read(name, 0, offset)
        assert (read[0].offset, read[0].content()) == (offset, records[offset].content())


@case("Reading", "out of range: OFFSET_OUT_OF_RANGE", {"read", "offset_out_of_range_error"})
def out_of_range(context: Context) -> None:
    name = context.topic()
    context.peer.produce(name, numbered(5))
    refused("OFFSET_OUT_OF_RANGE", lambda: context.client.read(name, 0, 999))


@case("Reading", "an empty topic: nothing, no error", {"read"})
def empty_topic(context: Context) -> None:
    name = context.topic()
    with pytest.raises(ReadTimeout) as raised:
        context.client.read(name, 0, EARLIEST, timeout=1.5)
    assert raised.value.records == []


@case("Reading", "long poll answers when data comes", {"read", "fetch_limits"})
def long_poll(context: Context) -> None:
    """The reader may wait 20 s for each fetch; ten records that come one by one must arrive far sooner than one such
    wait."""

    def read_what_comes() -> None:
        name = context.topic()
        stop = threading.Event()
        failures: list[BaseException] = []

        def feed() -> None:
            try:
                while not stop.is_set():
                    context.peer.produce(name, [Record(b"v", key=b"k")], linger_ms=0)
                    stop.wait(0.1)
            except BaseException as error:
                failures.append(error)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            read = context.client.read(name, 0, 0, 10, max_wait_ms=20_000)
        finally:
            stop.set()
            feeder.join()
        assert not failures, failures
        assert [record.offset for record in read] == list(range(10))

    at_once(read_what_comes, 18, "the broker waits out max.wait")


@case("Reading", "min.bytes not reached: answers after max.wait", {"read", "fetch_limits"})
def min_bytes(context: Context) -> None:
    name = context.topic()
    context.peer.produce(name, numbered(3))
    read = context.client.read(name, 0, EARLIEST, 3, min_bytes=1_000_000, max_wait_ms=300)
    assert len(read) == 3


@case("Reading", "min.bytes as large as the limit: answers at once", {"read", "fetch_limits"})
def min_bytes_as_large_as_the_limit(context: Context) -> None:
    name = context.topic()
    records = numbered(20, size=5000)
    for record in records:
        context.peer.produce(name, [record], linger_ms=0)
    # No number of batches fills it. Far from the end, so that what is fetched ahead is there as well.
    limits = {"max_partition_bytes": 12_000, "min_bytes": 12_000, "max_wait_ms": 20_000}
    read = at_once(
        lambda: context.client.read(name, 0, EARLIEST, 9, **limits), 18, "the broker waits for the rest of a batch"
    )
    assert [record.content() for record in read[:9]] == [record.content() for record in records[:9]]


@case("Reading", "fetch limit below a batch still moves on", {"read", "fetch_limits"})
def small_fetch_limit(context: Context) -> None:
    name = context.topic()
    records = numbered(6, size=5000)
    for record in records:
        context.peer.produce(name, [record], linger_ms=0)
    read = context.client.read(name, 0, EARLIEST, 6, max_bytes=1000, max_partition_bytes=1000)
    assert [record.content() for record in read] == [record.content() for record in records]


@case("Reading", "many records over many fetches", {"read", "fetch_limits"})
def many_records(context: Context) -> None:
    name = context.topic()
    records = numbered(5000, size=100)
    context.peer.produce(name, records)
    read = context.client.read(name, 0, EARLIEST, 5000, max_partition_bytes=50_000)
    assert [record.offset for record in read] == list(range(5000))
    assert [record.value for record in read] == [record.value for record in records]


@case("Reading", "read_committed-safe: nothing lost after idempotent writes", {"read", "idempotent_producer"})
def idempotent_read(context: Context) -> None:
    name = context.topic()
    records = numbered(100)
    context.peer.produce(name, records, idempotent=True, compression="lz4")
    read = context.client.read(name, 0, 50, 50) if "codec_lz4" in context.client.features else []
    assert [record.offset for record in read] in (list(range(50, 100)), [])


# Offsets


@case("Offsets", "earliest and latest", {"list_offsets"})
def list_offsets(context: Context) -> None:
    name = context.topic()
    assert context.client.list_offset(name, 0, EARLIEST) == 0
    assert context.client.list_offset(name, 0, LATEST) == 0
    context.peer.produce(name, numbered(7))
    assert context.client.list_offset(name, 0, EARLIEST) == 0
    assert context.client.list_offset(name, 0, LATEST) == 7


@case("Offsets", "by timestamp", {"offset_for_timestamp"})
def offset_for_timestamp(context: Context) -> None:
    name = context.topic(retention_ms="-1")
    records = [Record(b"v", key=b"k", timestamp=SOME_TIME + index * 1000) for index in range(20)]
    context.peer.produce(name, records[:10], linger_ms=100)
    context.peer.produce(name, records[10:], linger_ms=100)
    for timestamp, offset in (
        (SOME_TIME - 5, 0),
        (SOME_TIME, 0),
        (SOME_TIME + 1, 1),
        (SOME_TIME + 7000, 7),
        (SOME_TIME + 9500, 10),
        (SOME_TIME + 19000, 19),
    ):
        assert context.client.list_offset(name, 0, timestamp) == offset, timestamp
    beyond = context.client.list_offset(name, 0, SOME_TIME + 19001)
    # Clients tell "none" either as none or as the end of the log.
    assert beyond in (-1, 20)
    start = context.client.list_offset(name, 0, SOME_TIME + 6500)
    assert context.reader.read(name, 0, start)[0].timestamp in (SOME_TIME + 7000, None)


@case("Offsets", "of the highest timestamp", {"offset_of_max_timestamp"})
def offset_of_max_timestamp(context: Context) -> None:
    name = context.topic(retention_ms="-1")
    assert context.client.list_offset(name, 0, MAX_TIMESTAMP) == -1
    steps = (0, 5000, 9000, 2000, 8999, 1)
    context.peer.produce(name, [Record(b"v", key=b"k", timestamp=SOME_TIME + step) for step in steps])
    assert context.client.list_offset(name, 0, MAX_TIMESTAMP) == 2


# Keeping


@case("Keeping", "restart: records, topics and configs are there")
def restart(context: Context) -> None:
    if not context.broker.can_restart:
        pytest.skip("this broker was not started by the tests")
    name = context.topic(partitions=2, retention_ms="987654321")
    records = numbered(50)
    context.client.produce(name, records, idempotent="idempotent_producer" in context.client.features)
    context.broker.restart()
    assert settled(lambda: context.peer.partition_count(name)) == 2
    # Apache Kafka tells of a partition a moment before it takes the lead of it, and kafkajs takes that for final.
    assert settled(lambda: context.peer.list_offset(name, 0, LATEST)) == 50
    assert context.peer.describe_configs(name)["retention.ms"] == "987654321"
    read_all(context, name, records)
    more = [Record(b"after the restart", key=b"k")]
    check_offsets(context, context.client.produce(name, more), [50])
    assert context.reader.read(name, 0, 50)[0].value == b"after the restart"


import compat_tests.many_partitions  # noqa: E402, F401  (its cases are registered behind these)
