"""One message at a time while a node is at something that has nothing to do with its client."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import raw
from benchmarks.cluster_servers import NODES, ClusterServer
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload

CONNECTIONS = 500
PARTITIONS = 1_000
MESSAGES = 1_000
"""Messages of one figure: a second at the most."""


def beside(bench: Bench, bootstrap: str, topic: str, work: Callable[[], object]) -> Figures:
    """Measure the latency of one message at a time, undisturbed and for as long as ``work`` takes."""

    def p99() -> float:
        return float(bench.load.run("latency", bootstrap, topic, MESSAGES, 100, "acks=all", "linger.ms=0")["p99_ms"])

    idle = statistics.median([p99() for _ in range(5)])
    with ThreadPoolExecutor(1) as pool:
        working, meanwhile = pool.submit(work), [p99()]
        while not working.done():
            meanwhile.append(p99())
        working.result()
    slowed = statistics.median(meanwhile)
    return {"p99_idle_ms": idle, "p99_ms": slowed, "p99_growth": slowed / idle}


def connections(bench: Bench, server: Server) -> Figures:
    """Five hundred clients connect, ask for the versions of the APIs, and go together; again and again."""

    def come_and_go() -> None:
        until = time.monotonic() + bench.amount(6, 3)
        while time.monotonic() < until:
            with contextlib.ExitStack() as stack:
                opened = [raw.Connection.open(server.host, server.port) for _ in range(CONNECTIONS)]
                for connection in opened:
                    stack.callback(connection.close)
                for connection in opened:
                    connection.request(raw.api_versions_frame())

    return beside(bench, server.bootstrap, bench.new_topic(server, 1), come_and_go)


def partitions(bench: Bench, server: Server) -> Figures:
    """Topics of a thousand partitions are made and deleted, one after another."""

    def make() -> None:
        for _ in range(5):
            bench.delete_topic(server, bench.new_topic(server, PARTITIONS))

    return beside(bench, server.bootstrap, bench.new_topic(server, 1), make)


def catching_up(bench: Bench, server: Server) -> Figures:
    """A node that was away fetches 1 GB from the leader that takes the messages."""
    assert isinstance(server, ClusterServer)
    leader, away = 1, NODES
    names = {"copied": list(range(1, NODES + 1)), "alone": [leader]}
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    topics = [NewTopic(name, 1, replica_assignment=[replicas]) for name, replicas in names.items()]
    for made in admin.create_topics(topics, request_timeout=30).values():
        made.result(40)
    server.await_in_sync_of("copied", NODES)
    server.stop_node(away)
    server.await_in_sync_of("copied", NODES - 1)
    bench.load.run("produce", server.bootstrap, "copied", bench.amount(1_000_000, 300_000), 1_000, "acks=all")

    def catch_up() -> None:
        server.start_node(away)
        server.await_in_sync_of("copied", NODES)

    figures = beside(bench, server.bootstrap, "alone", catch_up)
    for name in names:
        admin.delete_topics([name], request_timeout=30)[name].result(40)
    return figures


BESIDE_WORKLOADS: tuple[Workload, ...] = (
    Workload("connections-latency", f"one message at a time while {CONNECTIONS} connections come and go", connections),
    Workload(
        "partitions-latency", "one message at a time while topics of 1,000 partitions are made and deleted", partitions
    ),
)
CATCHING_UP = Workload(
    "cluster-catching-up-latency", "one message at a time while a follower fetches 1 GB", catching_up, "cluster"
)
