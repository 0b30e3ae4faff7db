"""Spark's Kafka sink, batch and streaming, option by option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.spark.records import create, numbers, produce, read, read_stream, with_options
from tests.patience import LONG, eventually


def write(frame: Any, bootstrap: str, **options: object) -> None:
    """A batch of the sink."""
    with_options(frame.write.format("kafka"), bootstrap, options).save()


def stream(frame: Any, bootstrap: str, checkpoint: Path, **options: object) -> None:
    """All that is there now, through the sink."""
    writer = with_options(frame.writeStream.format("kafka"), bootstrap, options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(LONG)), "the query did not end"


def test_keys_headers_and_partitions(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = create(bootstrap, new_name(), 3)
    frame = spark.range(0, 200).selectExpr(
        "concat('k', id) AS key",
        "concat('v', id) AS value",
        "cast(id % 3 AS int) AS partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary)),"
        " named_struct('key', 'none', 'value', cast(null AS binary))) AS headers",
    )
    write(frame, bootstrap, topic=name, includeHeaders="true")
    rows = read(spark, bootstrap, subscribe=name, includeHeaders="true").collect()
    written = sorted(
        (int(row["value"][1:]), row["key"], row["partition"], [(h["key"], h["value"]) for h in row["headers"]])
        for row in rows
    )
    assert written == [(n, f"k{n}".encode(), n % 3, [("n", str(n).encode()), ("none", None)]) for n in range(200)]


def test_the_key_decides_the_partition(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    """By Kafka's own hash, so Java's and librdkafka's producers put a key where the sink does."""
    from confluent_kafka import Producer

    name = create(bootstrap, new_name(), 5)
    write(spark.range(0, 50).selectExpr("concat('k', id) AS key", "concat('v', id) AS value"), bootstrap, topic=name)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for n in range(50):
        producer.produce(name, f"v{n}", f"k{n}")
    assert producer.flush(LONG) == 0
    rows = read(spark, bootstrap, subscribe=name).groupBy("key").agg({"partition": "collect_set", "value": "count"})
    found = rows.toDF("key", "partitions", "count").collect()
    assert len(found) == 50
    assert all(len(row["partitions"]) == 1 and row["count"] == 2 for row in found)


def test_a_topic_in_each_row(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    names = [create(bootstrap, new_name(), 1) for _ in range(2)]
    frame = spark.range(0, 20).selectExpr(
        f"CASE WHEN id % 2 = 0 THEN '{names[0]}' ELSE '{names[1]}' END AS topic", "concat('v', id) AS value"
    )
    write(frame, bootstrap)
    assert numbers(read(spark, bootstrap, subscribe=names[0])) == list(range(0, 20, 2))
    assert numbers(read(spark, bootstrap, subscribe=names[1])) == list(range(1, 20, 2))


def test_values_alone_and_absent_values(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = create(bootstrap, new_name(), 1)
    write(spark.sql("SELECT CAST(NULL AS STRING) AS value UNION ALL SELECT 'there'"), bootstrap, topic=name)
    rows = read(spark, bootstrap, subscribe=name).collect()
    assert sorted((row["key"], row["value"] or b"") for row in rows) == [(None, b""), (None, b"there")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(spark: Any, bootstrap: str, new_name: Callable[[], str], codec: str) -> None:
    name = create(bootstrap, new_name(), 2)
    frame = spark.range(0, 300).selectExpr("concat('v', id) AS value")
    write(frame, bootstrap, topic=name, kafka__compression__type=codec)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(300))


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks(spark: Any, bootstrap: str, new_name: Callable[[], str], acks: str) -> None:
    name = create(bootstrap, new_name(), 1)
    frame = spark.range(0, 100).selectExpr("concat('v', id) AS value")
    write(frame, bootstrap, topic=name, kafka__acks=acks, kafka__enable__idempotence=str(acks == "all").lower())

    def is_there() -> bool:
        return numbers(read(spark, bootstrap, subscribe=name)) == list(range(100))

    if acks == "0":  # it ends when it has sent, and not when the broker has it
        eventually(is_there, "the records")
    assert is_there()


def test_records_beyond_the_topics_limit(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = create(bootstrap, new_name(), 1, max_message_bytes=1000)
    frame = spark.sql("SELECT repeat('x', 5000) AS value")
    with pytest.raises(Exception, match=r"RecordTooLargeException|larger than the max message size"):
        write(frame, bootstrap, topic=name)
    assert read(spark, bootstrap, subscribe=name).count() == 0


def test_a_partition_that_does_not_exist(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = create(bootstrap, new_name(), 2)
    frame = spark.sql("SELECT 'x' AS value, 7 AS partition")
    with pytest.raises(Exception, match=r"Invalid partition|not present in metadata|Partition 7"):
        write(frame, bootstrap, topic=name, kafka__max__block__ms="2000")


# --- streams


def test_from_topic_to_topic_and_again(spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path) -> None:
    """availableNow with a checkpoint: the second run copies what came in between, and nothing else."""
    source, target = create(bootstrap, new_name(), 3), create(bootstrap, new_name(), 2)
    produce(bootstrap, source, 3, 300)
    for records in (300, 360):
        frame = read_stream(
            spark, bootstrap, subscribe=source, maxOffsetsPerTrigger=120, includeHeaders="true"
        ).selectExpr("key", "value", "headers", "cast(offset % 2 AS int) AS partition")
        stream(frame, bootstrap, tmp_path / "checkpoint", topic=target, includeHeaders="true")
        rows = read(spark, bootstrap, subscribe=target, includeHeaders="true").collect()
        found = sorted(
            (int(row["value"][1:]), row["key"], row["partition"], row["headers"][0]["value"]) for row in rows
        )
        assert found == [(n, f"k{n}".encode(), n // 3 % 2, str(n).encode()) for n in range(records)], (
            "each record once, with its key and headers, in the partition that was chosen"
        )
        produce(bootstrap, source, 3, 60, first=300)


def test_an_aggregation_in_update_and_complete_mode(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    source = create(bootstrap, new_name(), 1)
    produce(bootstrap, source, 1, 40)
    for mode, expected in (("update", 4), ("complete", 8)):
        target = create(bootstrap, new_name(), 1)
        counts = (
            read_stream(spark, bootstrap, subscribe=source)
            .selectExpr("cast(substring(cast(value AS string), 2) AS int) % 4 AS key")
            .groupBy("key")
            .count()
            .selectExpr("cast(key AS string) AS key", "cast(count AS string) AS value")
        )
        for _ in range(1 if mode == "update" else 2):
            writer = with_options(counts.writeStream.format("kafka"), bootstrap, {"topic": target}).outputMode(mode)
            query = writer.option("checkpointLocation", str(tmp_path / mode)).trigger(availableNow=True).start()
            assert query.awaitTermination(int(LONG))
            if mode == "complete":
                produce(bootstrap, source, 1, 40, first=40)
        rows = read(spark, bootstrap, subscribe=target).collect()
        assert len(rows) == expected
        assert {row["value"] for row in rows} >= {b"10"}


def test_a_topic_that_is_made_by_writing_to_it(spark: Any, bootstrap: str, new_name: Callable[[], str]) -> None:
    name = new_name()
    write(spark.range(0, 10).selectExpr("concat('v', id) AS value"), bootstrap, topic=name)
    assert numbers(read(spark, bootstrap, subscribe=name)) == list(range(10))
