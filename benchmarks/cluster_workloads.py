"""Three nodes: three replicas, two of them in sync, acks=all; and how long nothing is acknowledged when one is lost."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.beside_workloads import CATCHING_UP
from benchmarks.clients import LoadError
from benchmarks.cluster_servers import NODES, ClusterServer
from benchmarks.group_workloads import summed_up
from benchmarks.many_workloads import MANY_WORKLOADS
from benchmarks.servers import Server
from benchmarks.transaction_failover import TRANSACTION_FAILOVER
from benchmarks.transaction_workloads import RECORDS, commit, producer
from benchmarks.workloads import Bench, Figures, Workload, stored_records
from compat_tests.cluster.history import History
from compat_tests.cluster.load import Writer

_numbers = itertools.count(1)


def _cluster(server: Server) -> ClusterServer:
    assert isinstance(server, ClusterServer)
    return server


@contextmanager
def _topic(server: Server, partitions: int) -> Iterator[str]:
    """A topic on all nodes, all of whose partitions are led; removed afterwards."""
    topic = f"cluster-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, NODES)], request_timeout=30)[topic].result(40)
    deadline = time.monotonic() + 30
    while True:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(found) == partitions and all(len(each.isrs) == NODES for each in found.values()):
            break
        if time.monotonic() > deadline:
            raise LoadError(f"{topic} is not on all nodes after 30 s")
        time.sleep(0.01)
    yield topic
    admin.delete_topics([topic], request_timeout=30)[topic].result(40)


def startup(bench: Bench, server: Server) -> Figures:
    """Launch of three processes to the first record that two of them have."""
    server.start()
    cluster = _cluster(server)
    cluster.until(lambda client: client.all_nodes() and len(client.brokers) == NODES, "no cluster")
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    deadline = time.monotonic() + 60
    while True:
        try:
            admin.create_topics([NewTopic("first", 1, NODES)], request_timeout=5)["first"].result(5)
            break
        except Exception as error:
            if time.monotonic() > deadline:
                raise LoadError(f"the first topic could not be created: {error}") from None
            time.sleep(0.01)
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "log_level": 0, "retry.backoff.ms": 10})
    producer.produce("first", b"x")
    if producer.flush(60):
        raise LoadError("the first record was not acknowledged within 60 s")
    taken = time.monotonic() - server.launched_at
    cluster.await_port()
    return {"first_record_s": taken, "format_s": server.format_seconds}


def idle(bench: Bench, server: Server) -> Figures:
    """Three nodes that nobody speaks to."""
    time.sleep(bench.amount(10, 4))  # what a start leaves to do in the background
    before, start = server.cpu_seconds(), time.monotonic()
    time.sleep(bench.amount(20, 6))
    used = (server.cpu_seconds() - before) / (time.monotonic() - start)
    return {"MB": server.resident_bytes() / 1e6, "cpu_percent": used * 100}


def warm_up(bench: Bench, server: Server) -> Figures:
    """Not reported."""
    with _topic(server, 6) as topic:
        bench.load.run("produce", server.bootstrap, topic, bench.amount(300_000, 100_000), 1000, "acks=all")
    with _topic(server, 1) as topic:
        bench.load.run("latency", server.bootstrap, topic, bench.amount(3_000, 1_000), 100, "acks=all", "linger.ms=0")
    return {}


def produce(codec: str) -> Callable[[Bench, Server], Figures]:
    def run(bench: Bench, server: Server) -> Figures:
        count = bench.amount(400_000, 150_000)
        with _topic(server, 6) as topic:
            before = server.cpu_seconds()
            options = ["acks=all", *([f"compression.type={codec}"] if codec else [])]
            result = bench.load.run("produce", server.bootstrap, topic, count, 1000, *options)
            _cluster(server).await_in_sync()  # what followers have yet to fetch is part of the work
            cpu = server.cpu_seconds() - before
            stored = stored_records(server, topic, 6)
        if stored < count:
            raise LoadError(f"{count:,} records were acknowledged, {stored:,} are there")
        return {"MB_per_s": count / result["seconds"] / 1e3, "cpu_s_per_GB": cpu / (count / 1e6)}

    return run


def latency(bench: Bench, server: Server) -> Figures:
    with _topic(server, 1) as topic:
        count = bench.amount(10_000, 2_000)
        result = bench.load.run("latency", server.bootstrap, topic, count, 100, "acks=all", "linger.ms=0")
    return {name: result[name] for name in ("p50_ms", "p99_ms", "max_ms")}


def transactions(client: str) -> Callable[[Bench, Server], Figures]:
    """Transactions of a record for each of a hundred partitions, one after another, by librdkafka or Java."""

    def run(bench: Bench, server: Server) -> Figures:
        warm_up, count = bench.amount(100, 50), bench.amount(300, 200)
        with _topic(server, RECORDS) as topic:
            if client == "java":
                took = bench.java.commit(server.bootstrap, topic, RECORDS, warm_up, count)
            else:
                made = producer(server)
                commit(made, topic, warm_up, RECORDS)
                took = commit(made, topic, count, RECORDS)
        return {"transactions_per_s": len(took) / sum(took), **summed_up(took)}

    return run


def lost(how: str, *, controller: bool) -> Callable[[Bench, Server], Figures]:
    """A leader is lost under an idempotent producer of 1,000 messages a second: the longest silence in its partition.

    ``controller``: whether it is the active controller, too. The median of some losses.
    """

    def run(bench: Bench, server: Server) -> Figures:
        cluster = _cluster(server)
        silences = []
        cluster.await_in_sync()  # the node that was lost before may just have been started
        with _topic(server, NODES) as topic:
            for _ in range(bench.amount(3, 2)):
                cluster.await_in_sync()
                silences.append(_lose(cluster, topic, how, controller))
        return {"silence_s": statistics.median(silences)}

    return run


def _lose(cluster: ClusterServer, topic: str, how: str, controller: bool) -> float:
    active = cluster.controller()
    leaders = {cluster.leader_of(topic, partition): partition for partition in range(NODES)}
    wanted = [node for node in sorted(leaders) if (node == active) == controller]
    if not wanted:
        raise LoadError(f"{'the active controller leads nothing' if controller else 'only the controller leads'}")
    node, partition = wanted[0], leaders[wanted[0]]
    history = History()
    writer = Writer(cluster.bootstrap, topic, NODES, history, per_second=1000)
    try:
        writer.await_more(1000)
        seen = writer.count
        (cluster.kill_node if how == "kill" else cluster.stop_node)(node)
        writer.await_every_partition(60)
        writer.await_more(500)
        writer.stop()
    finally:
        writer._ended.set()
        cluster.start_node(node)
    if history.failed:
        raise LoadError(f"{len(history.failed)} records failed")
    times = [at for at, of in writer.acknowledged_at[max(0, seen - 200) :] if of == partition]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


CLUSTER_WARM_UP = Workload("cluster-warm-up", "warm-up, not reported", warm_up, "cluster")

CLUSTER_WORKLOADS: tuple[Workload, ...] = (
    Workload("cluster-startup", "three nodes: launch to first record on two of them", startup, "cluster"),
    Workload("cluster-idle", "three nodes, idle, all together", idle, "cluster"),
    CLUSTER_WARM_UP,
    Workload("cluster-produce", "three nodes: produce 1 KB, acks=all, 6 partitions", produce(""), "cluster"),
    Workload("cluster-produce-lz4", "the same with lz4", produce("lz4"), "cluster"),
    Workload("cluster-latency", "three nodes: one message at a time, librdkafka, acks=all", latency, "cluster"),
    *(
        Workload(
            f"cluster-transactions-{client}",
            f"three nodes: transactions of {RECORDS} records for {RECORDS} partitions, {name}",
            transactions(client),
            "cluster",
        )
        for client, name in (("librdkafka", "librdkafka"), ("java", "Java"))
    ),
    Workload("cluster-leader-stopped", "controlled shutdown of a leader", lost("stop", controller=False), "cluster"),
    Workload("cluster-leader-killed", "leader killed -9", lost("kill", controller=False), "cluster"),
    Workload(
        "cluster-controller-killed", "leader and active controller killed -9", lost("kill", controller=True), "cluster"
    ),
    TRANSACTION_FAILOVER,
    CATCHING_UP,
    *MANY_WORKLOADS,
)
"""In this order, on one cluster of each broker: the first starts it."""
