"""Structured streaming from Kafka: what changes under a query, how much a batch takes, restarts, triggers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.spark.killed_query import PER_BATCH
from compat_tests.spark.processes import kill_with_java, python
from compat_tests.spark.records import (
    Collected,
    add_partitions,
    create,
    numbers,
    offsets_json,
    produce,
    read,
    read_stream,
    run_available,
    running,
    with_options,
)
from tests.patience import LONG

QUICK_METADATA = {"kafka__metadata__max__age__ms": "500"}


@pytest.fixture
def topic(bootstrap: str, new_name: Callable[[], str]) -> str:
    """Three partitions with 100 records each."""
    name = create(bootstrap, new_name(), 3)
    produce(bootstrap, name, 3, 300)
    return name


# --- where it begins


def test_starting_offsets_count_for_the_first_run_only(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    stream = read_stream(spark, bootstrap, subscribe=topic, startingOffsets=offsets_json(topic, {0: 90, 1: -1, 2: -2}))
    expected = sorted([*range(270, 300, 3), *range(2, 300, 3)])
    assert run_available(stream, tmp_path / "c").numbers == expected
    again = read_stream(spark, bootstrap, subscribe=topic, startingOffsets="earliest")
    assert run_available(again, tmp_path / "c").numbers == []
    produce(bootstrap, topic, 3, 6, first=300)
    assert run_available(again, tmp_path / "c").numbers == list(range(300, 306))


def test_latest_is_where_the_topic_ends_when_the_query_starts(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    collected = Collected()
    stream = read_stream(spark, bootstrap, subscribe=topic, startingOffsets="latest")
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        assert collected.numbers == []
        produce(bootstrap, topic, 3, 30, first=300)
        query.processAllAvailable()
        assert collected.numbers == list(range(300, 330))


def test_a_start_by_timestamp(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    from compat_tests.spark.records import BASE_MS

    stream = read_stream(spark, bootstrap, subscribe=topic, startingTimestamp=BASE_MS + 250_000)
    assert run_available(stream, tmp_path / "a").numbers == list(range(250, 300))
    by_partition = offsets_json(topic, {0: BASE_MS + 297_000, 1: BASE_MS + 298_000, 2: BASE_MS + 10**9})
    stream = read_stream(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsetsByTimestamp=by_partition,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert run_available(stream, tmp_path / "b").numbers == [297, 298]


# --- what a query reads changes under it


def test_a_topic_that_is_made_while_a_pattern_is_read(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    stem = new_name()
    create(bootstrap, f"{stem}-a", 1)
    produce(bootstrap, f"{stem}-a", 1, 10)
    collected = Collected()
    stream = read_stream(spark, bootstrap, subscribePattern=f"{stem}-.*", **QUICK_METADATA)
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        assert collected.numbers == list(range(10))
        create(bootstrap, f"{stem}-b", 2)
        produce(bootstrap, f"{stem}-b", 2, 20, first=10)
        collected.wait_for(30)
        produce(bootstrap, f"{stem}-a", 1, 5, first=30)
        collected.wait_for(35)
    assert collected.numbers == list(range(35))


@pytest.mark.parametrize("deprecated", [False, True], ids=["by admin", "by consumer"])
def test_partitions_that_are_added_while_a_topic_is_read(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path, deprecated: bool
) -> None:
    """A new partition is read from its beginning, whatever startingOffsets says."""
    name = create(bootstrap, new_name(), 1)
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", str(deprecated).lower())
    try:
        collected = Collected()
        stream = read_stream(spark, bootstrap, subscribe=name, startingOffsets="latest", **QUICK_METADATA)
        with running(stream, tmp_path / "c", collected) as query:
            query.processAllAvailable()
            produce(bootstrap, name, 1, 10)
            collected.wait_for(10)
            add_partitions(bootstrap, name, 3)
            produce(bootstrap, name, 3, 30, first=10)
            collected.wait_for(40)
    finally:
        spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")
    assert collected.numbers == list(range(40))


# --- how much a batch takes


def test_max_offsets_per_trigger(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    stream = read_stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=90)
    collected = run_available(stream, tmp_path / "c")
    assert collected.numbers == list(range(300))
    assert collected.sizes == [90, 90, 90, 30]
    # Shared among the partitions by how much each has.
    assert all(sum(n % 3 == 0 for n in batch) in (10, 30) for batch in collected.batches.values() if batch)


def test_min_offsets_per_trigger_waits_for_more_or_for_its_time(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    name = create(bootstrap, new_name(), 1)
    produce(bootstrap, name, 1, 10)
    collected = Collected()
    stream = read_stream(spark, bootstrap, subscribe=name, minOffsetsPerTrigger=20, maxTriggerDelay="1h")
    with running(stream, tmp_path / "c", collected):
        collected.wait_for(10)  # the first batch waits for nothing
        produce(bootstrap, name, 1, 15, first=10)
        produce(bootstrap, name, 1, 15, first=25)
        collected.wait_for(40)
    sizes = collected.sizes
    assert sizes[0] == 10 and sizes[1] >= 20 and sum(sizes) == 40
    stream = read_stream(spark, bootstrap, subscribe=name, minOffsetsPerTrigger=20, maxTriggerDelay="1s")
    with running(stream, tmp_path / "d", collected := Collected()):
        collected.wait_for(40)
        produce(bootstrap, name, 1, 5, first=40)
        collected.wait_for(45)  # too few, but a second has passed
    assert collected.sizes[0] == 40 and sum(collected.sizes) == 45  # the five in one batch, or as they came


def test_min_partitions_and_max_records_in_a_stream(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    counts: list[int] = []

    def count(frame: Any, batch_id: int) -> None:
        counts.append(frame.rdd.getNumPartitions())

    for options in ({"minPartitions": 9}, {"maxRecordsPerPartition": 20}):
        stream = read_stream(spark, bootstrap, subscribe=topic, **options)
        writer = stream.writeStream.foreachBatch(count).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / next(iter(options)))).start()
        assert query.awaitTermination(int(LONG))
    assert counts == [9, 15]


def test_the_offsets_that_progress_tells(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """The offsets in a query's progress, by which people watch it."""
    with running(read_stream(spark, bootstrap, subscribe=topic), tmp_path / "c", Collected()) as query:
        query.processAllAvailable()
        progress = json.loads(query.lastProgress.json)["sources"][0]
    assert progress["description"] == f"KafkaV2[Subscribe[{topic}]]"
    assert progress["endOffset"] == {topic: {"0": 100, "1": 100, "2": 100}}
    assert progress["latestOffset"] == progress["endOffset"]
    assert float(progress["metrics"]["maxOffsetsBehindLatest"]) == 0


# --- restarts and kills


def test_a_query_that_fails_half_way_goes_on_where_it_was(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """At least once by Spark's own rules; exactly once for a sink that replaces a batch delivered again."""
    delivered: dict[int, list[int]] = {}
    times: dict[int, int] = {}

    def take(frame: Any, batch_id: int) -> None:
        times[batch_id] = times.get(batch_id, 0) + 1
        delivered[batch_id] = numbers(frame)
        if batch_id == 1 and times[batch_id] == 1:
            raise RuntimeError("killed in the middle of batch 1")

    def start() -> Any:
        stream = read_stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=90)
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(Exception, match="killed in the middle"):
        start().awaitTermination(int(LONG))
    first = list(delivered[1])
    produce(bootstrap, topic, 3, 30, first=300)
    assert start().awaitTermination(int(LONG))
    assert times[1] == 2 and delivered[1] == first, "the batch that failed is delivered again, the same records"
    assert sorted(n for batch in delivered.values() for n in batch) == list(range(330))


@pytest.mark.parametrize("sink", ["files", "topic"])
def test_a_driver_that_is_killed_in_the_middle_of_a_batch(
    spark: Any, bootstrap: str, topic: str, new_name: Callable[[], str], tmp_path: Path, sink: str
) -> None:
    """SIGKILL while a task is at a record, other tasks of the batch being done; then again from the checkpoint.

    Into files exactly once. Into a topic at least once: of the batch that was killed, what had been sent comes twice.
    """
    target = create(bootstrap, new_name(), 1) if sink == "topic" else "-"
    arguments = ["-m", "compat_tests.spark.killed_query", bootstrap, topic, target, str(tmp_path)]
    with python(*arguments) as process:
        deadline = time.monotonic() + 2 * LONG  # with the start of Java and of Spark
        while not (tmp_path / "reached").exists():
            assert process.poll() is None and time.monotonic() < deadline, "the query did not get to the record"
            time.sleep(0.02)
        kill_with_java(process)
    begun, done = ({int(file.name) for file in (tmp_path / "checkpoint" / name).glob("[0-9]*")}
                   for name in ("offsets", "commits"))  # fmt: skip
    killed = max(begun)
    assert begun - done == {killed} and killed > 0, "it was not killed in the middle of a batch"

    produce(bootstrap, topic, 3, 30, first=300)
    with python(*arguments) as process:
        _, errors = process.communicate(timeout=2 * LONG)
        assert process.returncode == 0, errors.decode()[-3000:]
    if sink == "files":
        rows = spark.read.parquet(str(tmp_path / "table")).collect()
        assert sorted(int(row["value"][1:]) for row in rows) == list(range(330))
        assert len({(row["partition"], row["offset"]) for row in rows}) == 330
    else:
        found = numbers(read(spark, bootstrap, subscribe=target))
        assert sorted(set(found)) == list(range(330))
        twice = {n for n in found if found.count(n) > 1}
        assert twice <= set(range(PER_BATCH * killed, PER_BATCH * (killed + 1))), "of other batches nothing comes twice"


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_the_broker_goes_away_under_a_query(
    spark: Any, broker: Broker, new_name: Callable[[], str], tmp_path: Path, how: str
) -> None:
    """Nothing is lost or comes twice, from topic to topic through the sink too."""
    if not broker.can_restart:
        pytest.skip("the broker is not ours to restart")
    bootstrap = broker.bootstrap
    source, target = create(bootstrap, new_name(), 2), create(bootstrap, new_name(), 2)
    produce(bootstrap, source, 2, 100)
    frame = read_stream(spark, bootstrap, subscribe=source).select("key", "value")
    writer = with_options(frame.writeStream.format("kafka"), bootstrap, {"topic": target})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        assert read(spark, bootstrap, subscribe=target).count() == 100
        getattr(broker, how)()
        produce(bootstrap, source, 2, 100, first=100)
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert numbers(read(spark, bootstrap, subscribe=target)) == list(range(200))


# --- triggers


def test_the_continuous_trigger(
    spark: Any, bootstrap: str, topic: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    target = create(bootstrap, new_name(), 2)
    # One task for each partition runs for as long as the query does: more of them than this machine has cores.
    few = read_stream(spark, bootstrap, assign=json.dumps({topic: [0, 1]})).select("key", "value")
    writer = with_options(few.writeStream.format("kafka"), bootstrap, {"topic": target})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(continuous="1 second").start()
    expected = [n for n in range(330) if n % 3 != 2]
    try:
        read_outside(bootstrap, target, 200)
        produce(bootstrap, topic, 3, 30, first=300)
        found = read_outside(bootstrap, target, len(expected))
    finally:
        query.stop()
    assert query.exception() is None
    assert sorted(found) == expected


def test_the_real_time_trigger(
    spark: Any, bootstrap: str, topic: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    target = create(bootstrap, new_name(), 2)
    frame = read_stream(spark, bootstrap, assign=json.dumps({topic: [0, 1]})).select("key", "value")
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")
    writer = with_options(frame.writeStream.format("kafka"), bootstrap, {"topic": target}).outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(realTime="3 seconds").start()
    expected = [n for n in range(330) if n % 3 != 2]
    try:
        read_outside(bootstrap, target, 200)
        produce(bootstrap, topic, 3, 30, first=300)
        found = read_outside(bootstrap, target, len(expected))
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.realTimeMode.minBatchDuration")
    assert query.exception() is None
    assert sorted(found) == expected


def read_outside(bootstrap: str, topic: str, count: int) -> list[int]:
    """Read `count` records of a topic of two partitions with a stock consumer, and return their numbers."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    found: list[int] = []
    try:
        while len(found) < count:
            message = consumer.poll(LONG)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None, message.error()
            found.append(int((message.value() or b"")[1:]))
        return found
    finally:
        consumer.close()
