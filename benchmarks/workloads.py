"""The workloads. Each takes a running broker and returns named figures; nothing in it knows which broker.

Units are in the names of the figures: `records_per_s`, `MB_per_s` (10^6 bytes of values), `cpu_s_per_GB` (the
broker's processor time for 10^9 bytes of values), `p50_ms`, `MB` (resident memory), `cpu_percent` (of one processor).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import raw
from benchmarks.clients import JavaPrograms, Load, LoadError, java_produce
from benchmarks.servers import Server

Figures = dict[str, float]
_numbers = itertools.count(1)
_MEGABYTE = bytes(1 << 20)


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})


@dataclass(slots=True)
class Bench:
    """The surroundings of a workload: the clients, the amount of work, the topics that were filled to be read."""

    scratch: Path
    load: Load
    java: JavaPrograms
    quick: bool
    filled: dict[tuple[str, int, int], tuple[str, int]] = field(default_factory=dict)

    def amount(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def new_topic(self, server: Server, partitions: int) -> str:
        """Creates a topic and waits until each partition has a leader."""
        topic = f"bench-{next(_numbers)}"
        admin = _admin(server)
        admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=30)[topic].result(40)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
                return topic
            time.sleep(0.005)
        raise LoadError(f"not all of {partitions} partitions have a leader after 30 s")

    def delete_topic(self, server: Server, topic: str) -> None:
        admin = _admin(server)
        admin.delete_topics([topic], request_timeout=30)[topic].result(40)

    def filled_topic(self, server: Server, size: int, partitions: int) -> tuple[str, int]:
        """A topic with records to be read, made on the first call, and how many there are."""
        key = (server.bootstrap, size, partitions)
        if key not in self.filled:
            count = record_count(self, size)
            topic = self.new_topic(server, partitions)
            self.load.run("produce", server.bootstrap, topic, count, size, "acks=all")
            self.filled[key] = (topic, count)
        return self.filled[key]

    def forget(self, server: Server) -> None:
        """The server's data is gone."""
        self.filled = {key: value for key, value in self.filled.items() if key[0] != server.bootstrap}


def record_count(bench: Bench, size: int) -> int:
    """Two to five seconds of produce; less than half of that in a quick run."""
    return bench.amount(2_000_000, 500_000) if size >= 1000 else bench.amount(5_000_000, 2_500_000)


LEADER_SECONDS = 60
"""Seconds that a topic's partitions may take to be led again after a broker has begun to serve."""


def stored_records(server: Server, topic: str, partitions: int) -> int:
    """Count the records that the broker reports by ListOffsets: all acknowledged ones must be among them.

    A broker that was killed serves some partitions sooner than others, so refusals are taken for a while.
    """
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "benchmark", "log_level": 3})
    try:
        total = 0
        until = time.monotonic() + LEADER_SECONDS
        for index in range(partitions):
            while True:
                try:
                    low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)
                    break
                except KafkaException:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
            total += high - low
        return total
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class Workload:
    """`phase` says on which broker it runs: `fresh` starts its own, `idle` before any load, `loaded` after.

    `cluster` and `secure` are other servers for all of them; `alone` and `cluster-alone` start what they need.
    """

    name: str
    title: str
    run: Callable[[Bench, Server], Figures]
    phase: str = "loaded"
    in_quick: bool = False


def _throughput(records: float, size: int, seconds: float, cpu: float | None) -> Figures:
    figures = {"records_per_s": records / seconds, "MB_per_s": records * size / seconds / 1e6}
    if cpu is not None:
        figures["cpu_s_per_GB"] = cpu / (records * size / 1e9)
    return figures


def _touch_page_cache(directory: Path, size: int) -> None:
    """Have the kernel use ``size`` bytes of page cache, and free them again.

    Memory that a virtual machine has not used lately is not there until its host has found some, which costs whoever
    touches it several times what a produce costs. Both brokers are to write to pages that are there.
    """
    path = directory / "pages"
    with path.open("wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(_MEGABYTE)
    path.unlink()


def _read_through(directory: Path, topic: str) -> None:
    """Have a topic's segments in the page cache, whatever the kernel has done with their pages since the last round."""
    for path in directory.rglob(f"{topic}-*/*.log"):
        with path.open("rb", buffering=0) as file:
            while file.read(len(_MEGABYTE)):
                pass


def produce(client: str, size: int, partitions: int, acks: str) -> Workload:
    """All records acknowledged, and all of them found in the topic afterwards."""

    def run(bench: Bench, server: Server) -> Figures:
        count = record_count(bench, size)
        if client == "java":
            count //= 4
        topic = bench.new_topic(server, partitions)
        _touch_page_cache(bench.scratch, count * (size + 20))
        before = server.cpu_seconds()
        if client == "java":
            result = java_produce(server.bootstrap, topic, count, size, acks)
        else:
            result = bench.load.run("produce", server.bootstrap, topic, count, size, f"acks={acks}")
        cpu = server.cpu_seconds() - before
        stored = stored_records(server, topic, partitions)
        if stored < count:
            raise LoadError(f"{count:,} records were acknowledged, {stored:,} are there")
        bench.delete_topic(server, topic)
        return _throughput(result["records"], size, result["seconds"], cpu)

    quick = partitions == 6 and acks == "all" and (client == "librdkafka" or size == 1000)
    title = f"produce {_size(size)}, {client}, acks={acks}, {_partitions(partitions)}"
    return Workload(f"produce-{client}-{size}-p{partitions}-acks-{acks}", title, run, in_quick=quick)


def consume(client: str, size: int, partitions: int) -> Workload:
    """From the beginning to the end of a topic in the page cache, partitions assigned by hand."""

    def run(bench: Bench, server: Server) -> Figures:
        topic, count = bench.filled_topic(server, size, partitions)
        _read_through(server.directory, topic)
        before = server.cpu_seconds()
        if client == "java":
            result = bench.java.consume(server.bootstrap, topic, partitions, count)
        else:
            result = bench.load.run("consume", server.bootstrap, topic, partitions, count)
        return _throughput(result["records"], size, result["seconds"], server.cpu_seconds() - before)

    title = f"consume {_size(size)}, {client}, {_partitions(partitions)}"
    quick = partitions == 6 and size == 1000
    return Workload(f"consume-{client}-{size}-p{partitions}", title, run, in_quick=quick)


def _size(size: int) -> str:
    return "1 KB" if size == 1000 else f"{size} B"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def latency(bench: Bench, server: Server) -> Figures:
    topic = bench.new_topic(server, 1)
    count = bench.amount(20_000, 3_000)
    result = bench.load.run("latency", server.bootstrap, topic, count, 100, "acks=all", "linger.ms=0")
    bench.delete_topic(server, topic)
    return {name: result[name] for name in ("p50_ms", "p99_ms", "max_ms")}


def small_requests(bench: Bench, server: Server) -> Figures:
    """100 connections, each with one Produce request of one record under way (raw sockets, acks=all)."""
    topic = bench.new_topic(server, 6)
    for partition in range(6):
        raw.await_record(server.host, server.port, topic, partition)
    figures, requests = send_small_requests(bench, server, topic, bench.amount(8, 4))
    stored = stored_records(server, topic, 6)
    if stored < requests:
        raise LoadError(f"{requests:,.0f} requests were answered, {stored:,} records are there")
    bench.delete_topic(server, topic)
    return figures


def send_small_requests(
    bench: Bench, server: Server, topic: str, seconds: float, partitions: int = 6
) -> tuple[Figures, float]:
    """The load of ``small_requests`` on a topic; its figures, and how many requests were answered."""
    frames = bench.scratch / "frames"
    frames.write_bytes(b"".join(raw.produce_frame(topic, index, b"x" * 100) for index in range(partitions)))
    before = server.cpu_seconds()
    offset = raw.produce_error_offset(topic)
    result = bench.load.run("requests", server.port, frames, partitions, 100, seconds, offset)
    cpu = server.cpu_seconds() - before
    return {
        "requests_per_s": result["requests"] / result["seconds"],
        "cpu_us_per_request": cpu / result["requests"] * 1e6,
    }, result["requests"]


def many_partitions(bench: Bench, server: Server) -> Figures:
    """A topic of 1,000 partitions: created and all led; then one record to each."""
    start = time.monotonic()
    topic = bench.new_topic(server, 1_000)
    created = time.monotonic() - start
    result = bench.load.run("spread", server.bootstrap, topic, 1_000, "acks=all")
    bench.delete_topic(server, topic)
    return {"created_s": created, "first_writes_s": result["seconds"]}


def startup(bench: Bench, server: Server) -> Figures:
    """Launch of the process to the first acknowledged record, tried every 2 ms. Formatting is apart."""
    server.start()
    server.await_port()
    accepted = raw.await_record(server.host, server.port, "first")
    return {"first_record_s": accepted - server.launched_at, "format_s": server.format_seconds}


def idle(bench: Bench, server: Server) -> Figures:
    """A fresh broker that nobody speaks to."""
    time.sleep(bench.amount(10, 4))  # what a start leaves to do in the background
    before, start, span = server.cpu_seconds(), time.monotonic(), bench.amount(20, 6)
    time.sleep(span)
    used = (server.cpu_seconds() - before) / (time.monotonic() - start)
    return {"MB": server.resident_bytes() / 1e6, "cpu_percent": used * 100}


def idle_connections(bench: Bench, server: Server) -> Figures:
    """1,000 connections that said ApiVersions and then nothing."""
    resident = server.resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(1_000):
            connection = raw.Connection.open(server.host, server.port)
            stack.callback(connection.close)
            connection.request(raw.api_versions_frame())
        time.sleep(1)
        before, start = server.cpu_seconds(), time.monotonic()
        time.sleep(bench.amount(20, 6))
        used = (server.cpu_seconds() - before) / (time.monotonic() - start)
        grown = server.resident_bytes() - resident
    return {"more_MB": grown / 1e6, "cpu_percent": used * 100}


def memory_after(bench: Bench, server: Server) -> Figures:
    """Resident memory when everything before has run on this broker."""
    return {"MB": server.resident_bytes() / 1e6}


def warm_up(bench: Bench, server: Server) -> Figures:
    """Not reported: a JVM is several times slower in its first seconds, and that is not what is compared."""
    for size in (1000, 100):
        topic, count = bench.filled_topic(server, size, 6)
        bench.load.run("consume", server.bootstrap, topic, 6, count)
    small_requests(bench, server)
    return {}


WARM_UP = Workload("warm-up", "warm-up, not reported", warm_up)

WORKLOADS: tuple[Workload, ...] = (
    Workload("startup", "launch to first accepted record", startup, "fresh", True),
    Workload("idle", "idle", idle, "idle", True),
    Workload("idle-connections", "1,000 idle connections", idle_connections, "idle", True),
    Workload("latency", "one message at a time, librdkafka, acks=all", latency, in_quick=True),
    Workload("requests", "100 connections, small synchronous produce", small_requests, in_quick=True),
    *(
        produce(client, size, partitions, acks)
        for client in ("librdkafka", "java")
        for size in (1000, 100)
        for partitions in (1, 6)
        for acks in (("all", "1") if (size, partitions) == (1000, 6) else ("all",))
    ),
    *(
        consume(client, size, partitions)
        for client in ("librdkafka", "java")
        for size in (1000, 100)
        for partitions in (1, 6)
    ),
    Workload("partitions", "topic of 1,000 partitions", many_partitions, in_quick=True),
    Workload("memory", "memory after all of it", memory_after, "last", True),
)
