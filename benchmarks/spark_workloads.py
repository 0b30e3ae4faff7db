"""Workloads of Spark: a batch read, a record's way through a query, the start of a test, ListOffsets, a topic's table.

One Spark session of this process, two cores, for both brokers. The ListOffsets requests are raw and need no Spark:
an executor sends two of them for every 500 rows, so their latency is in the rate of its reading.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.group_workloads import summed_up
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.tools.cli.child import module_command

ROWS, SIZE, PARTITIONS = 1_000_000, 100, 4

WARM_UP_SECONDS, LATENCY_SECONDS, FEWEST = 8.0, 25.0, 10
"""Of the records that go through a query one by one: bounds for each broker and round."""

_read_before = threading.Event()


@functools.cache
def session() -> Any:
    """The session, started when first asked for, and warm: a few queries have run in it, on a broker of its own."""
    from kbroker.testing import running_broker
    from kbroker.testing.spark import delta_session

    spark = delta_session("benchmark")
    with running_broker() as broker:
        raw.await_record(broker.host, broker.port, "source")
        raw.await_record(broker.host, broker.port, "target")
        for number in range(1, 6):
            with copying(spark, broker.bootstrap_servers, "source", "target"):
                await_copy(broker.bootstrap_servers, number)
    return spark


def list_offsets(bench: Bench, server: Server) -> Figures:
    """The latest offset of one partition, one request after another on one connection."""
    topic = bench.new_topic(server, 1)
    raw.await_record(server.host, server.port, topic)
    request = raw.list_offsets_frame(topic, 0)
    connection = raw.Connection.open(server.host, server.port)
    try:
        for _ in range(2_000):
            connection.request(request)
        count = bench.amount(20_000, 8_000)
        took = []
        before = server.cpu_seconds()
        for _ in range(count):
            start = time.perf_counter()
            connection.request(request)
            took.append(time.perf_counter() - start)
        cpu = server.cpu_seconds() - before
        latest = raw.listed_offset(connection.request(request), topic)
    finally:
        connection.close()
    bench.delete_topic(server, topic)
    if latest != 1:
        raise LoadError(f"the latest offset is 1, and was said to be {latest}")
    return {**summed_up(took), "cpu_us_per_request": cpu / count * 1e6}


def batch_read(bench: Bench, server: Server) -> Figures:
    """All rows of a topic, every column decoded and thrown away."""
    spark = session()
    topic = bench.new_topic(server, PARTITIONS)
    bench.load.run("produce", server.bootstrap, topic, ROWS, SIZE, "acks=all")

    def read() -> float:
        start = time.monotonic()
        rows = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        rows.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()
        return time.monotonic() - start

    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
    if (found := rows.option("subscribe", topic).load().count()) != ROWS:
        raise LoadError(f"{ROWS:,} rows were produced, Spark read {found:,}")
    # A JVM's first seconds are not what is compared, nor who comes first.
    for _ in range(2 if _read_before.is_set() else 6):
        read()
    _read_before.set()
    before = server.cpu_seconds()
    took = [read() for _ in range(3)]
    cpu = server.cpu_seconds() - before
    bench.delete_topic(server, topic)
    return {"records_per_s": ROWS / statistics.median(took), "cpu_s_per_GB": cpu / (len(took) * ROWS * SIZE / 1e9)}


@contextmanager
def copying(spark: Any, bootstrap: str, source: str, target: str) -> Iterator[Any]:
    """A query from topic to topic, as fast as it can."""
    directory = tempfile.mkdtemp(prefix="bench-spark-")
    options = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest")
    writer = stream.load().select("value").writeStream.format("kafka").options(**options, topic=target)
    query = writer.option("checkpointLocation", directory).trigger(processingTime="0 seconds").start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(directory, ignore_errors=True)


def await_copy(bootstrap: str, offset: int) -> float:
    """Wait until topic "target" has a record at ``offset``; ``time.monotonic()`` then."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", "log_level": 3})
    consumer.assign([TopicPartition("target", 0, offset)])
    try:
        message = consumer.poll(60)
        if message is None or message.error() is not None:
            raise LoadError(f"no record came out: {message and message.error()}")
        return time.monotonic()
    finally:
        consumer.close()


class Probe:
    """Sends a record, and waits until it comes out."""

    def __init__(self, server: Server, source: str, target: str) -> None:
        self._source = source
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "log_level": 3})
        self._consumer = Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "probe", "fetch.wait.max.ms": 100, "log_level": 3}
        )
        self._consumer.assign([TopicPartition(target, 0, 0)])

    def __call__(self) -> float:
        """Seconds from the call of produce to the record's arrival at a consumer of the other topic."""
        start = time.perf_counter()
        self._producer.produce(self._source, b"x", partition=0)
        self._producer.flush(30)
        message = self._consumer.poll(60)
        if message is None or message.error() is not None:
            raise LoadError(f"no record came out: {message and message.error()}")
        return time.perf_counter() - start

    def close(self) -> None:
        self._consumer.close()


def streaming_latency(bench: Bench, server: Server) -> Figures:
    """Measure one record after another on its way through a query, from the producer to a consumer behind the sink.

    It ends after a number of records or of seconds: a slow machine measures fewer of them.
    """
    spark = session()
    source, target = bench.new_topic(server, 1), bench.new_topic(server, 1)
    with copying(spark, server.bootstrap, source, target):
        probe = Probe(server, source, target)
        warm_until = time.monotonic() + WARM_UP_SECONDS
        for _ in range(30):
            probe()
            if time.monotonic() > warm_until:
                break
        took: list[float] = []
        end = time.monotonic() + LATENCY_SECONDS
        while len(took) < bench.amount(80, 60) and (time.monotonic() < end or len(took) < FEWEST):
            took.append(probe())
        probe.close()
    for topic in (source, target):
        bench.delete_topic(server, topic)
    return summed_up(took)


def first_batch(bench: Bench, server: Server) -> Figures:
    """Measure a test's start with a warm session: from the launch of a broker to the first result of a query.

    The parts: the broker takes a first record; a second topic is created; Spark's ``start`` returns; the first trigger
    ends. The broker's share is its processor time within the whole.
    """
    spark = session()
    start = time.monotonic()
    server.start()
    server.await_port()
    accepted = raw.await_record(server.host, server.port, "source")
    second = raw.await_record(server.host, server.port, "target")
    before = server.cpu_seconds()
    with copying(spark, server.bootstrap, "source", "target") as query:
        started = time.monotonic()
        done = await_copy(server.bootstrap, 1)
        cpu = server.cpu_seconds() - before
        trigger = first_trigger(query)
    return {
        "first_result_s": done - start,
        "first_record_s": accepted - server.launched_at,
        "second_topic_s": second - accepted,
        "query_start_s": started - second,
        "first_trigger_s": trigger,
        "broker_cpu_in_query_s": cpu,
    }


def first_trigger(query: Any) -> float:
    """Seconds that a query's first trigger took, by Spark's own count."""
    deadline = time.monotonic() + 30
    while not (reports := query.recentProgress):
        if time.monotonic() > deadline:
            raise LoadError("the query has nothing to report")
        time.sleep(0.01)
    return float(reports[0]["durationMs"]["triggerExecution"]) / 1000


TABLE_ROWS = 10_000_000


def table_read(bench: Bench, server: Server) -> Figures:
    """A filter and a group by over a topic's JSON values of 100 B, and over the table that `kbroker table` has made."""
    from pyspark.sql import functions as F

    spark, rows = session(), bench.amount(TABLE_ROWS, TABLE_ROWS // 10)
    server.start()
    server.await_port()
    topic = bench.new_topic(server, PARTITIONS)
    values = [json.dumps({"id": n, "customer": f"customer-{n % 97}", "total": n / 4, "note": ""}) for n in range(1000)]
    values = [value[:-2] + "x" * (SIZE - len(value)) + value[-2:] for value in values]
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "log_level": 3})
    for n in range(rows):
        while True:
            try:
                producer.produce(topic, values[n % 1000], partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()

    def asked(frame: Any) -> list[Any]:
        late = frame.where("total > 125").groupBy("customer").agg(F.count("*"), F.sum("total")).orderBy("customer")
        found: list[Any] = late.collect()
        return found

    def by_topic() -> list[Any]:
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        value = F.from_json(F.col("value").cast("string"), "id LONG, customer STRING, total DOUBLE, note STRING")
        return asked(source.option("subscribe", topic).load().select(value.alias("v")).select("v.*"))

    with tempfile.TemporaryDirectory(prefix="bench-table-") as directory:
        words = ["table", "follow", topic, "--to", f"delta:{directory}/table", "--value", "json", "--once"]
        subprocess.run([*module_command("kbroker"), *words, "-b", server.bootstrap], check=True, stdout=sys.stderr)

        def by_table() -> list[Any]:
            return asked(spark.read.format("delta").load(f"{directory}/table"))

        if by_topic() != by_table() or by_table() == []:
            raise LoadError("the table says something else than the topic")
        took: dict[Any, list[float]] = {by_topic: [], by_table: []}
        for _ in range(3):
            for ask, seconds in took.items():
                start = time.monotonic()
                ask()
                seconds.append(time.monotonic() - start)
    pairs = zip(took[by_topic], took[by_table], strict=True)
    return {
        "records_per_s": rows / statistics.median(took[by_table]),
        "topic_records_per_s": rows / statistics.median(took[by_topic]),
        "times_faster": statistics.median(topic / table for topic, table in pairs),
    }


SPARK_WORKLOADS: tuple[Workload, ...] = (
    Workload("list-offsets", "ListOffsets of one partition", list_offsets, in_quick=True),
    Workload("spark-first-batch", "Spark, launch of the broker to a first result", first_batch, "fresh"),
    Workload("spark-batch-read", "Spark, batch read of 1,000,000 rows of 100 B", batch_read),
    Workload("spark-latency", "Spark, one record through a query", streaming_latency),
    Workload("spark-table-read", f"Spark, a filter and a group by over {TABLE_ROWS:,} rows", table_read, "alone", True),
)


def can_run(workload: Workload) -> bool:
    """Whether what it needs is installed: PySpark is in the extra `spark`, not in `bench`."""
    return not workload.name.startswith("spark-") or importlib.util.find_spec("pyspark") is not None
