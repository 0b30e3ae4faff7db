"""Workloads of the log through a whole broker: restarts, and how work on old data disturbs clients at the tail."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload, stored_records

GIB = 1 << 30
KEYS = 200_000
COMPACTED_RECORDS = 3_000_000
MANY_TOPICS, MANY_PARTITIONS = 10, 1_000
LATENCIES = 5_000
"""Messages of one round of latency: a second or two."""


def _begin(server: Server) -> None:
    server.start()
    server.await_port()
    raw.await_record(server.host, server.port, "first")


def _restart_after_kill(server: Server, topic: str) -> float:
    """Seconds from the launch after kill -9 to the first record that ``topic`` accepts."""
    server.kill()
    server.start()
    server.await_port()
    return raw.await_record(server.host, server.port, topic) - server.launched_at


def restart_large(bench: Bench, server: Server) -> Figures:
    """1 GiB in one segment that was never flushed."""
    _begin(server)
    topic = bench.new_topic(server, 1)
    count = bench.amount(GIB, GIB // 4) // 1_000
    bench.load.run("produce", server.bootstrap, topic, count, 1_000, "acks=all")
    seconds = _restart_after_kill(server, topic)
    stored = stored_records(server, topic, 1)
    if stored <= count:
        raise LoadError(f"{count:,} records and one more were acknowledged, {stored:,} are there")
    return {"killed_s": seconds}


def restart_many(bench: Bench, server: Server) -> Figures:
    """10,000 partitions with a record each, all on one disk: what each costs in memory, and a restart after kill -9."""
    _begin(server)
    topics = bench.amount(MANY_TOPICS, 2)
    before = server.resident_bytes()
    names = [bench.new_topic(server, MANY_PARTITIONS) for _ in range(topics)]
    for name in names:
        bench.load.run("spread", server.bootstrap, name, MANY_PARTITIONS, "acks=all")
    grown = server.resident_bytes() - before
    seconds = _restart_after_kill(server, names[-1])
    for name in names:
        stored = stored_records(server, name, MANY_PARTITIONS)
        if stored < MANY_PARTITIONS:
            raise LoadError(f"{name}: {stored:,} of {MANY_PARTITIONS:,} records are there")
    return {"killed_s": seconds, "partition_KB": grown / (topics * MANY_PARTITIONS) / 1e3}


def _p99(bench: Bench, server: Server, topic: str) -> float:
    result = bench.load.run("latency", server.bootstrap, topic, LATENCIES, 100, "acks=all", "linger.ms=0")
    return float(result["p99_ms"])


def _fill_with_keys(server: Server, topic: str, count: int) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "log_level": 3})
    value = os.urandom(87)
    for number in range(count):
        key = b"key-%09d" % (number * 7_919 % KEYS)
        while True:
            try:
                producer.produce(topic, value, key, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if not number & 0x3FF:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise LoadError(f"not all keyed records were accepted: {failed[:1]}")


def compaction(bench: Bench, server: Server) -> Figures:
    """Records of 100 B are compacted while another partition takes one message at a time."""
    _begin(server)
    quiet, noisy = bench.new_topic(server, 1), "to-compact"
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 << 20),
        "min.cleanable.dirty.ratio": "1.0",  # no round begins before the figure without one is known
    }
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(noisy, 1, 1, config=configs)])[noisy].result(30)
    _fill_with_keys(server, noisy, bench.amount(COMPACTED_RECORDS, COMPACTED_RECORDS // 3))
    directory = next(server.directory.rglob(f"{noisy}-0"))
    size = _size(directory)
    _p99(bench, server, quiet)
    idle = statistics.median(_p99(bench, server, quiet) for _ in range(3))
    before = server.cpu_seconds()
    _set_dirty_ratio(server, noisy)
    began: float | None = None
    meanwhile: list[float] = []
    deadline = time.monotonic() + 120
    while True:
        figure = _p99(bench, server, quiet)
        now = time.monotonic()
        left = _size(directory)
        if began is not None or left != size:
            meanwhile.append(figure)
            began = now if began is None else began
        if left < size * 0.5 and not any(directory.glob("*.cleaned")):
            break
        if now > deadline:
            raise LoadError(f"the topic is not compacted after 120 s: {left:,} of {size:,} bytes")
    return {
        "p99_idle_ms": idle,
        "p99_ms": max(meanwhile),
        "p99_growth": max(meanwhile) / idle,
        "compaction_cpu_s_per_GB": (server.cpu_seconds() - before) / (size / 1e9),
    }


def _set_dirty_ratio(server: Server, topic: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _size(directory: Path) -> int:
    """Bytes in segments, those that are being written by the cleaner included."""
    return sum(path.stat().st_size for path in directory.iterdir() if ".log" in path.name and path.exists())


def _tail_p99(server: Server, topic: str, count: int, begin: Callable[[], Future[Any]] | None = None) -> float:
    """ms from sending a record to having read it, on consumers that are at the end: of ``count`` records, and of all
    that are sent until the work is done that ``begin`` has begun.
    """
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, "log_level": 3})
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "tail",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "log_level": 3,
        }
    )
    took: list[float] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        deadline = time.monotonic() + 20
        while consumer.poll(0.2) is None:  # until it stands at the end, nothing is seen of what is sent
            producer.produce(topic, b"are you there", partition=0)
            producer.flush(10)
            if time.monotonic() > deadline:
                raise LoadError("the reader of the tail sees nothing after 20 s")
        while consumer.poll(0.3) is not None:
            pass
        work = None if begin is None else begin()
        while len(took) < count or (work is not None and not work.done()):
            start = time.perf_counter()
            producer.produce(topic, b"x" * 100, partition=0)
            producer.poll(0)
            message = consumer.poll(10)
            if message is None or message.error():
                raise LoadError("a record was not seen at the tail within 10 s")
            took.append(time.perf_counter() - start)
    finally:
        consumer.close()
    took.sort()
    return took[len(took) * 99 // 100] * 1e3


def cold_reading(bench: Bench, server: Server) -> Figures:
    """A reader of 2 GiB that are not in memory, beside a reader of the newest records."""
    _begin(server)
    cold, tail = bench.new_topic(server, 1), bench.new_topic(server, 1)
    count = bench.amount(2 * GIB, GIB // 2) // 1_000
    bench.load.run("produce", server.bootstrap, cold, count, 1_000, "acks=all")
    messages = bench.amount(2_000, 500)
    _tail_p99(server, tail, messages)
    idle = _tail_p99(server, tail, messages)
    _drop_from_memory(server.directory, f"{cold}-0")
    with ThreadPoolExecutor(1) as pool:
        begun: list[Future[dict[str, float]]] = []

        def begin() -> Future[dict[str, float]]:
            begun.append(pool.submit(bench.load.run, "consume", server.bootstrap, cold, 1, count))
            return begun[0]

        meanwhile = _tail_p99(server, tail, 1, begin)
        result = begun[0].result()
    return {
        "p99_idle_ms": idle,
        "p99_ms": meanwhile,
        "p99_growth": meanwhile / idle,
        "MB_per_s": result["records"] * 1_000 / result["seconds"] / 1e6,
    }


def _drop_from_memory(directory: Path, partition: str) -> None:
    """Write a partition's files to the disk, and have the kernel forget their pages."""
    os.sync()
    for path in next(directory.rglob(partition)).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


LOG_WORKLOADS: tuple[Workload, ...] = (
    Workload("restart-large", "kill -9 with 1 GiB unflushed, launch to first accepted record", restart_large, "fresh"),
    Workload("restart-many", "10,000 partitions, kill -9, launch to first accepted record", restart_many, "fresh"),
    Workload("compaction", "one message at a time while 300 MB of 100 B are compacted", compaction, "fresh"),
    Workload("cold-reading", "newest records sent and read while 2 GiB are read from disk", cold_reading, "fresh"),
)
