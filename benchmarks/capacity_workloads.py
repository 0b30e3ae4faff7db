"""Three loads: what `kbroker capacity` reckons when it is told what came, beside what is measured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.clients import LoadError
from benchmarks.cluster_servers import NODES, KbrokerCluster
from benchmarks.servers import Server
from benchmarks.steady_load import CONNECTIONS, ready_topic, steady_requests
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.tools.cli.capacity_plan import Load, plan_capacity

PARTITIONS = 6
SIZE = 1_000
OFF_BY = 2.5
"""The factor by which what was reckoned may differ from what was measured (docs/capacity.md)."""


def _beside(
    server: Server, seconds: float, messages: Callable[[], int], load: Callable[[float, float], Load]
) -> Figures:
    """Measure the nodes for so long, and reckon for as many the same by ``load(messages a second, seconds)``."""
    time.sleep(2)  # connections, and the first segments
    cpu, began, sent = server.cpu_seconds(), time.monotonic(), messages()
    time.sleep(seconds)
    taken = time.monotonic() - began
    cores, memory = (server.cpu_seconds() - cpu) / taken, server.resident_bytes()
    came = load((messages() - sent) / taken, taken)
    plan, reckoned = plan_capacity(came), came.busy_cores(came.replicas)  # a node for each replica
    if not 1 / OFF_BY <= reckoned / cores <= OFF_BY:
        raise LoadError(f"{reckoned:.2f} cores were reckoned where {cores:.2f} were taken")
    return {
        "messages_per_s": (messages() - sent) / taken,
        "cores": cores,
        "reckoned_cores": reckoned,
        "reckoned_by_measured": reckoned / cores,
        "MB": memory / 1e6,
        "reckoned_MB": plan.memory * plan.machines / plan.nodes * came.replicas / 1e6,
    }


class _Paced:
    """A producer of so many messages a second, in a thread, with the records of each 5 ms in one request."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.sent = 0
        self.requests = 0
        self._rate = rate
        self._topic = topic
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
                "statistics.interval.ms": 500,
            }
            | {"stats_cb": self._on_statistics}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_statistics(self, text: str) -> None:
        self.requests = sum(each["req"]["Produce"] for each in json.loads(text)["brokers"].values())

    def _run(self) -> None:
        value, began, step = b"x" * SIZE, time.monotonic(), 0
        while not self._ended.is_set():
            for _ in range(self._rate // 200):
                self._producer.produce(self._topic, value, partition=self.sent // 20 % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)
            step += 1
            time.sleep(max(0.0, began + step / 200 - time.monotonic()))

    def close(self) -> None:
        """End it, and have all acknowledged."""
        self._ended.set()
        self._thread.join()
        self._producer.flush(30)


@contextmanager
def _reading(bootstrap: str, topic: str, readers: int) -> Iterator[None]:
    """Consumers at the end of the topic, each of which reads all."""
    ended = threading.Event()

    def read(number: int) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reader-{number}", "log_level": 0})
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        while not ended.is_set():
            consumer.consume(5_000, 0.1)
        consumer.close()

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(readers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _paced(server: Server, topic: str, bench: Bench, rate: int, readers: int, replicas: int) -> Figures:
    with ExitStack() as stack:
        stack.enter_context(_reading(server.bootstrap, topic, readers))
        producer = _Paced(server.bootstrap, topic, rate)
        stack.callback(producer.close)
        before = producer.requests

        def load(messages: float, seconds: float) -> Load:
            batch = messages * seconds * SIZE / max(1, producer.requests - before)
            return Load(
                messages,
                SIZE,
                batch=batch,
                readers=readers,
                replicas=replicas,
                partitions=PARTITIONS,
                connections=4 + readers,
                cores=1,
            )

        time.sleep(1)
        return _beside(server, bench.amount(15, 6), lambda: producer.sent, load)


def one_node(bench: Bench, server: Server) -> Figures:
    """1 KB at 20,000 a second on one node, and one reader."""
    server.start()
    server.await_port()
    return _paced(server, ready_topic(bench, server), bench, 20_000, 1, 1)


def small_requests(bench: Bench, server: Server) -> Figures:
    """100 connections that send one message of 100 B at a time, as fast as they can."""
    server.start()
    server.await_port()
    with steady_requests(bench, server, ready_topic(bench, server)) as steady:
        return _beside(
            server,
            bench.amount(15, 6),
            lambda: steady.requests,
            lambda messages, _: Load(
                messages, 100, batch=100, readers=0, replicas=1, partitions=PARTITIONS, connections=CONNECTIONS, cores=1
            ),
        )


def fan_out(bench: Bench, server: Server) -> Figures:
    """1 KB at 5,000 a second on three nodes, three replicas, three readers."""
    cluster = KbrokerCluster()
    try:
        cluster.start()
        cluster.await_port()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("fan-out", PARTITIONS, NODES)], request_timeout=30)["fan-out"].result(40)
        cluster.await_in_sync_of("fan-out", NODES)
        return _paced(cluster, "fan-out", bench, 5_000, 3, NODES)
    finally:
        cluster.stop()


CAPACITY_WORKLOADS: tuple[Workload, ...] = (
    Workload("capacity-one-node", "capacity: 1 KB, 20,000 a second, one reader, one node", one_node, "alone"),
    Workload("capacity-small", "capacity: 100 connections, 100 B a request, one node", small_requests, "alone"),
    Workload("capacity-fan-out", "capacity: 1 KB, 5,000 a second, three readers, three nodes", fan_out, "alone"),
)
