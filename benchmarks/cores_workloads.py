"""Two and four nodes on the machine (`kbroker start --cores`) and one, in turns: what a gigabyte and a request cost."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient

from benchmarks import raw
from benchmarks.servers import Kbroker, Server
from benchmarks.workloads import Bench, Figures, Workload

PARTITIONS = 12
"""Each of four nodes leads three."""
CONNECTIONS = 100
TURNS = 3


def small_requests(bench: Bench, server: Server, topic: str, seconds: float) -> tuple[float, float]:
    """Send one-record requests to the leaders. Returns their number a second, and the microseconds for each."""
    metadata = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3}).list_topics(topic, timeout=10)
    led: dict[int, list[bytes]] = {}
    for index, partition in metadata.topics[topic].partitions.items():
        port = metadata.brokers[partition.leader].port
        raw.await_record(server.host, port, topic, index)
        led.setdefault(port, []).append(raw.produce_frame(topic, index, b"x" * 100))
    offset, before = raw.produce_error_offset(topic), server.cpu_seconds()

    def to_node(port: int) -> float:
        frames = bench.scratch / f"frames-{port}"
        frames.write_bytes(b"".join(led[port]))
        result = bench.load.run("requests", port, frames, len(led[port]), CONNECTIONS // len(led), seconds, offset)
        return float(result["requests"])

    with ThreadPoolExecutor(len(led)) as pool:
        requests = sum(pool.map(to_node, led))
    return requests / seconds, (server.cpu_seconds() - before) / requests * 1e6


def figures_of(bench: Bench, server: Server) -> Figures:
    """Measure a turn: a produce of 1 KB records, then small requests."""
    topic, count = bench.new_topic(server, PARTITIONS), bench.amount(1_000_000, 300_000)
    before = server.cpu_seconds()
    result = bench.load.run("produce", server.bootstrap, topic, count, 1_000, "acks=all")
    gigabytes = count * 1_000 / 1e9
    figures = {
        "MB_per_s": gigabytes * 1_000 / result["seconds"],
        "cpu_s_per_GB": (server.cpu_seconds() - before) / gigabytes,
    }
    bench.delete_topic(server, topic)
    topic = bench.new_topic(server, PARTITIONS)
    figures["requests_per_s"], figures["cpu_us_per_request"] = small_requests(bench, server, topic, bench.amount(6, 3))
    bench.delete_topic(server, topic)
    return figures


def cores(nodes: int) -> Workload:
    """Compare several nodes with one of the same machine."""

    def run(bench: Bench, _: Server) -> Figures:
        several = type("Several", (Kbroker,), {"options": ("--cores", str(nodes))})
        servers: list[Server] = [Kbroker(), several()]
        turns: list[list[Figures]] = [[], []]
        try:
            for server in servers:
                server.start()
                server.await_port()
            for turn in range(TURNS):
                for index in (0, 1) if turn % 2 else (1, 0):
                    turns[index].append(figures_of(bench, servers[index]))
        finally:
            for server in servers:
                server.stop()
        one, many = ({name: statistics.median(each[name] for each in of) for name in of[0]} for of in turns)
        growth = {f"{name}_growth": many[name] / one[name] for name in ("cpu_s_per_GB", "cpu_us_per_request")}
        return many | growth

    return Workload(f"cores-{nodes}", f"{nodes} nodes for the cores of the machine, by one node", run, "alone")


CORES_WORKLOADS: tuple[Workload, ...] = (cores(2), cores(4))
