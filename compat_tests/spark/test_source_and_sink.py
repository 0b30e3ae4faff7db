"""Spark's Kafka source and sink, option by option, on small topics."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_examples.flights import create_topic

BASE_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z


def produce(bootstrap: str, topic: str, partitions: int, records: int, *, codec: str = "none", first: int = 0) -> None:
    """Record n has key k<n>, value v<n>, header n=<n>, timestamp BASE_MS + n s, and lies in partition n modulo."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for n in range(first, first + records):
        producer.produce(
            topic,
            f"v{n}",
            f"k{n}",
            partition=n % partitions,
            timestamp=BASE_MS + n * 1_000,
            headers=[("n", str(n).encode()), ("none", None)],
        )
    assert producer.flush(30) == 0


@pytest.fixture
def topic(bootstrap: str, new_name: Callable[[], str]) -> str:
    """Three partitions with 100 records each."""
    name = new_name()
    create_topic(bootstrap, name, 3)
    produce(bootstrap, name, 3, 300)
    return name


def read(spark: Any, bootstrap: str, **options: str) -> Any:
    return spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).options(**options).load()


def numbers(rows: Any) -> list[int]:
    return sorted(int(row["value"][1:]) for row in rows.select("value").collect())


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


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: Any, bootstrap: str, new_name: Callable[[], str], codec: str) -> None:
    name = new_name()
    create_topic(bootstrap, name, 2)
    produce(bootstrap, name, 2, 500, codec=codec)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(500))


def test_offsets_as_bounds(spark: Any, bootstrap: str, topic: str) -> None:
    starting = json.dumps({topic: {"0": 90, "1": -2, "2": 100}})
    ending = json.dumps({topic: {"0": -1, "1": 5, "2": -1}})
    rows = read(spark, bootstrap, subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert numbers(rows) == sorted([*range(270, 300, 3), *range(1, 16, 3)])


def test_timestamps_as_bounds(spark: Any, bootstrap: str, topic: str) -> None:
    bounds = {"startingTimestamp": str(BASE_MS + 30_000), "endingTimestamp": str(BASE_MS + 60_000)}
    assert numbers(read(spark, bootstrap, subscribe=topic, **bounds)) == list(range(30, 60))


def test_assign_and_pattern(spark: Any, bootstrap: str, topic: str) -> None:
    assigned = read(spark, bootstrap, assign=json.dumps({topic: [0, 2]}))
    assert numbers(assigned) == [n for n in range(300) if n % 3 != 1]
    assert numbers(read(spark, bootstrap, subscribePattern=topic[:-1] + f"[{topic[-1]}]")) == list(range(300))


def test_min_partitions(spark: Any, bootstrap: str, topic: str) -> None:
    rows = read(spark, bootstrap, subscribe=topic, minPartitions="12")
    assert rows.rdd.getNumPartitions() >= 12
    assert numbers(rows) == list(range(300))


def test_an_unknown_topic_fails_the_query_with_kafkas_error(
    spark: Any, bootstrap: str, new_name: Callable[[], str]
) -> None:
    name = new_name()
    message = "UnknownTopicOrPartitionException: This server does not host this topic-partition"
    with pytest.raises(Exception, match=message):
        read(spark, bootstrap, assign=json.dumps({name: [0]})).count()


def test_batch_sink(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = new_name()
    create_topic(bootstrap, name, 3)
    frame = spark.range(0, 200).selectExpr(
        "concat('k', id) AS key",
        "concat('v', id) AS value",
        "cast(id % 3 AS int) AS partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary))) AS headers",
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", name).option(
        "includeHeaders", "true"
    ).save()
    rows = read(spark, bootstrap, subscribe=name, includeHeaders="true").collect()
    written = sorted((int(row["value"][1:]), row["partition"], row["headers"][0]["value"]) for row in rows)
    assert written == [(n, n % 3, str(n).encode()) for n in range(200)]


def test_stream_from_topic_to_topic(
    spark: Any, bootstrap: str, topic: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    """availableNow with a checkpoint: the second run copies what came in between, and nothing else."""
    target = new_name()
    create_topic(bootstrap, target, 2)

    def copy() -> None:
        source = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "70")
            .load()
        )
        query = (
            source.select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90), "the query did not end"

    copy()
    assert numbers(read(spark, bootstrap, subscribe=target)) == list(range(300))
    produce(bootstrap, topic, 3, 60, first=300)
    copy()
    assert numbers(read(spark, bootstrap, subscribe=target)) == list(range(360))
