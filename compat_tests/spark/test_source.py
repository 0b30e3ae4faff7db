"""Spark's Kafka source in batches, option by option, on small topics."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from compat_tests.spark.records import (
    BASE_MS,
    IMPATIENT,
    add_partitions,
    admin,
    create,
    delete_records,
    numbers,
    offsets_json,
    produce,
    read,
)
from tests.patience import LONG

OFFSET_FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@pytest.fixture(scope="module")
def topic(bootstrap: str, new_module_name: Callable[[], str]) -> str:
    """Three partitions with 100 records each, which no test changes."""
    name = create(bootstrap, new_module_name(), 3)
    produce(bootstrap, name, 3, 300)
    return name


@pytest.fixture(params=["by admin", "by consumer"])
def offset_fetching(spark: Any, request: pytest.FixtureRequest) -> Any:
    """The driver asks for offsets by AdminClient, or (deprecated) by a consumer that polls."""
    spark.conf.set(OFFSET_FETCHING, str(request.param == "by consumer").lower())
    yield request.param
    spark.conf.unset(OFFSET_FETCHING)


def test_every_column(spark: Any, bootstrap: str, topic: str) -> None:
    rows = read(spark, bootstrap, subscribe=topic, includeHeaders="true").collect()
    assert len(rows) == 300
    for row in rows:
        n = int(row["value"][1:])
        assert (row["key"], row["topic"], row["partition"], row["offset"]) == (f"k{n}".encode(), topic, n % 3, n // 3)
        assert row["timestampType"] == 0
        assert row["timestamp"].replace(tzinfo=None).timestamp() * 1000 == pytest.approx(
            datetime.datetime.fromtimestamp((BASE_MS + n * 1_000) / 1000).timestamp() * 1000
        )
        assert [(header["key"], header["value"]) for header in row["headers"]] == [
            ("n", str(n).encode()),
            ("none", None),
        ]


def test_without_headers_there_is_no_column_of_them(spark: Any, bootstrap: str, topic: str) -> None:
    frame = read(spark, bootstrap, subscribe=topic)
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    # Columns that are not asked for, nothing but a number, and a filter that Spark applies itself.
    assert frame.count() == 300
    assert frame.where("partition = 1 AND offset < 10").count() == 10


def test_absent_keys_and_values_and_the_brokers_time(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    from confluent_kafka import Producer

    name = create(bootstrap, new_name(), 1, message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, None, "only a key", timestamp=BASE_MS)
    producer.produce(name, b"", None)
    assert producer.flush(LONG) == 0
    rows = read(spark, bootstrap, subscribe=name, includeHeaders="true").orderBy("offset").collect()
    assert [(row["key"], row["value"], row["timestampType"], row["headers"]) for row in rows] == [
        (b"only a key", None, 1, None),
        (None, b"", 1, None),
    ]
    assert all(row["timestamp"].year > 2020 for row in rows)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: Any, bootstrap: str, new_name: Callable[[], str], codec: str) -> None:
    name = create(bootstrap, new_name(), 2)
    produce(bootstrap, name, 2, 500, compression_type=codec)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(500))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_topic_that_compresses_itself(spark: Any, bootstrap: str, new_name: Callable[[], str], codec: str) -> None:
    name = create(bootstrap, new_name(), 1, compression_type=codec)
    produce(bootstrap, name, 1, 200)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(200))


# --- which topics


def test_several_topics(spark: Any, bootstrap: str, topic: str, new_name: Callable[[], str]) -> None:
    other = create(bootstrap, new_name(), 1)
    produce(bootstrap, other, 1, 10, first=300)
    assert numbers(read(spark, bootstrap, subscribe=f"{topic},{other}")) == list(range(310))
    counts = read(spark, bootstrap, subscribe=f"{topic}, {other}").groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counts} == {topic: 300, other: 10}


def test_a_pattern(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    stem = new_name()
    for number, suffix in enumerate(("-a", "-b", "-other")):
        create(bootstrap, stem + suffix, 1)
        produce(bootstrap, stem + suffix, 1, 10, first=10 * number)
    assert numbers(read(spark, bootstrap, subscribePattern=f"{stem}-[ab]")) == list(range(20))


def test_assigned_partitions(spark: Any, bootstrap: str, topic: str, offset_fetching: str) -> None:
    assigned = read(spark, bootstrap, assign=json.dumps({topic: [0, 2]}))
    assert numbers(assigned) == [n for n in range(300) if n % 3 != 1]


# --- which offsets


def test_offsets_as_bounds(spark: Any, bootstrap: str, topic: str, offset_fetching: str) -> None:
    rows = read(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsets=offsets_json(topic, {0: 90, 1: -2, 2: 100}),
        endingOffsets=offsets_json(topic, {0: -1, 1: 5, 2: -1}),
    )
    assert numbers(rows) == sorted([*range(270, 300, 3), *range(1, 16, 3)])


def test_earliest_and_latest_in_words(spark: Any, bootstrap: str, topic: str, offset_fetching: str) -> None:
    assert read(spark, bootstrap, subscribe=topic, startingOffsets="earliest", endingOffsets="latest").count() == 300


def test_timestamps_as_bounds(spark: Any, bootstrap: str, topic: str, offset_fetching: str) -> None:
    rows = read(spark, bootstrap, subscribe=topic, startingTimestamp=BASE_MS + 30_000, endingTimestamp=BASE_MS + 60_000)
    assert numbers(rows) == list(range(30, 60))


def test_timestamps_of_each_partition(spark: Any, bootstrap: str, topic: str, offset_fetching: str) -> None:
    first = offsets_json(topic, {0: BASE_MS + 30_000, 1: BASE_MS, 2: BASE_MS + 290_000})
    # An end that no record reaches is the latest offset.
    last = offsets_json(topic, {0: BASE_MS + 40_000, 1: BASE_MS + 3_000, 2: BASE_MS + 10_000_000})
    rows = read(spark, bootstrap, subscribe=topic, startingOffsetsByTimestamp=first, endingOffsetsByTimestamp=last)
    assert numbers(rows) == sorted([30, 33, 36, 39, 1, 290, 293, 296, 299])


@pytest.mark.parametrize("strategy", [None, "error", "latest"])
def test_a_start_that_no_record_reaches(
    spark: Any, bootstrap: str, topic: str, offset_fetching: str, strategy: str | None
) -> None:
    options = {} if strategy is None else {"startingOffsetsByTimestampStrategy": strategy}
    frame = read(spark, bootstrap, subscribe=topic, startingTimestamp=BASE_MS + 10_000_000, **options)
    if strategy == "latest":
        assert frame.count() == 0
    else:
        with pytest.raises(Exception, match="No offset matched from request"):
            frame.count()


def test_offsets_beyond_the_end_deliver_what_is_there(
    spark: Any, bootstrap: str, topic: str, offset_fetching: str
) -> None:
    """An end of 500 where 100 is the end: data were lost, says Spark, unless told that this is no reason to fail."""
    bounds = {
        "subscribe": topic,
        "startingOffsets": offsets_json(topic, {0: 95, 1: 95, 2: 95}),
        "endingOffsets": offsets_json(topic, {0: 500, 1: -1, 2: 97}),
    }
    with pytest.raises(Exception, match=r"(?i)out of range|lost|timed out"):
        read(spark, bootstrap, **bounds, **IMPATIENT).count()
    rows = read(spark, bootstrap, **bounds, **IMPATIENT, failOnDataLoss="false")
    assert numbers(rows) == sorted([285, 288, 291, 294, 297, 286, 289, 292, 295, 298, 287, 290])


# --- how it is read


def test_min_partitions(spark: Any, bootstrap: str, topic: str) -> None:
    rows = read(spark, bootstrap, subscribe=topic, minPartitions="12")
    assert rows.rdd.getNumPartitions() >= 12
    assert numbers(rows) == list(range(300))


def test_small_polls_and_fetches(spark: Any, bootstrap: str, topic: str) -> None:
    """The connector's own way: a poll of 500 or fewer records, a position each, the rest from its buffer."""
    rows = read(
        spark,
        bootstrap,
        subscribe=topic,
        kafka__max__poll__records="7",
        kafka__max__partition__fetch__bytes="300",
        kafka__fetch__max__bytes="300",
    )
    assert numbers(rows) == list(range(300))


def test_group_ids(spark: Any, bootstrap: str, topic: str) -> None:
    """A prefix, and a whole group id: neither joins or commits anything."""
    for options in ({"groupIdPrefix": "mine"}, {"kafka__group__id": f"{topic}-group"}):
        assert read(spark, bootstrap, subscribe=topic, **options).count() == 300
    client = admin(bootstrap)
    listed = client.list_consumer_groups().result(LONG)
    assert f"{topic}-group" not in {group.group_id for group in listed.valid}


def test_partitions_that_were_added(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = create(bootstrap, new_name(), 1)
    produce(bootstrap, name, 1, 10)
    assert read(spark, bootstrap, subscribe=name).count() == 10
    add_partitions(bootstrap, name, 3)
    produce(bootstrap, name, 3, 30, first=10)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(40))


def test_records_that_were_deleted(
    spark: Any, bootstrap: str, new_name: Callable[[], str], offset_fetching: str
) -> None:
    name = create(bootstrap, new_name(), 2)
    produce(bootstrap, name, 2, 100)
    delete_records(bootstrap, name, {0: 40, 1: 50})
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(80, 100, 2))


def test_a_topic_without_records(spark: Any, bootstrap: str, new_name: Callable[[], str], offset_fetching: str) -> None:
    name = create(bootstrap, new_name(), 2)
    assert read(spark, bootstrap, subscribe=name).count() == 0


def test_large_records(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    """Three megabytes in one record, more than a fetch asks for of a partition."""
    from confluent_kafka import Producer

    name = create(bootstrap, new_name(), 1, max_message_bytes=4 << 20)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4 << 20})
    for size in (10, 3 << 20, 20):
        producer.produce(name, b"x" * size, partition=0)
        assert producer.flush(LONG) == 0
    rows = read(spark, bootstrap, subscribe=name).selectExpr("length(value) AS size").collect()
    assert [row["size"] for row in rows] == [10, 3 << 20, 20]


def test_the_topic_is_as_the_source_left_it(bootstrap: str, topic: str) -> None:
    """Reading changes nothing; and the source has made no topic of its own."""
    client = admin(bootstrap)
    described = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    configs = next(iter(described.values())).result(LONG)
    assert configs["retention.ms"].value == "-1"


# --- bad input


@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_an_unknown_topic_fails_the_query_with_kafkas_error(
    spark: Any, bootstrap: str, new_name: Callable[[], str], how: str, offset_fetching: str
) -> None:
    name = new_name()
    where = {"assign": json.dumps({name: [0]})} if how == "assign" else {"subscribe": name}
    if offset_fetching == "by consumer":  # whose Metadata request makes the topic
        assert read(spark, bootstrap, **where).count() == 0
        return
    message = r"UnknownTopicOrPartitionException: This server does not host this topic-partition"
    with pytest.raises(Exception, match=message):
        read(spark, bootstrap, **where).count()


def test_a_pattern_that_matches_nothing(spark: Any, bootstrap: str) -> None:
    assert read(spark, bootstrap, subscribePattern="no-topic-is-called-.*").count() == 0


def test_assigned_partitions_that_do_not_exist_are_left_out(spark: Any, bootstrap: str, topic: str) -> None:
    assert read(spark, bootstrap, assign=json.dumps({topic: [0, 7]})).count() == 100


def test_start_after_end(spark: Any, bootstrap: str, topic: str) -> None:
    with pytest.raises(Exception, match=r"(?i)start offset"):
        read(
            spark,
            bootstrap,
            subscribe=topic,
            startingOffsets=offsets_json(topic, {0: 50, 1: 0, 2: 0}),
            endingOffsets=offsets_json(topic, {0: 20, 1: 1, 2: 1}),
        ).count()
