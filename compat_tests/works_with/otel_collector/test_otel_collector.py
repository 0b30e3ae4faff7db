"""OpenTelemetry's collector gets the metrics of three nodes: names, types, units, attributes and values are right; a
node and the collector itself are lost and come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.brokers import Broker, broker_under_test
from compat_tests.works_with.conftest import NODES
from compat_tests.works_with.judge import (
    committed,
    create_topics,
    end_offsets,
    leader,
    replicas_of,
    topics_of,
    write,
)
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.otel_collector.shown import Kind, Look, Shown
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until
from kbroker.tools.cli.cluster_plan import free_ports

RECORDS = 3000
READ = 900
INTERVAL_MS = 1000
SUM, CUMULATIVE = "Sum", "Cumulative"
TRAFFIC = "kafka_server_brokertopicmetrics_messagesin_total"
PLACE = {"topic", "partition"}


def counter(unit: str) -> Kind:
    return Kind(unit, SUM, "true", CUMULATIVE)


def up_down(unit: str) -> Kind:
    return Kind(unit, SUM, "false", CUMULATIVE)


def gauge(unit: str) -> Kind:
    return Kind(unit, "Gauge")


OF_OPENTELEMETRY: dict[str, tuple[Kind, set[str]]] = {
    "kafka.message.count": (counter("{messages}"), set()),
    "kafka.network.io": (counter("By"), {"direction"}),
    "kafka.request.count": (counter("{requests}"), {"type"}),
    "kafka.request.failed": (counter("{requests}"), {"type"}),
    "kafka.purgatory.size": (up_down("{requests}"), {"type"}),
    "kafka.partition.count": (up_down("{partitions}"), set()),
    "kafka.partition.offline": (up_down("{partitions}"), set()),
    "kafka.partition.underReplicated": (up_down("{partitions}"), set()),
    "kafka.isr.operation.count": (up_down("{operations}"), {"operation"}),
    "kafka.lag.max": (gauge("{messages}"), set()),
    "kafka.leader.count": (gauge("{partitions}"), set()),
    "kafka.controller.active.count": (up_down("{controllers}"), set()),
    "kafka.leaderElection.unclean.count": (counter("{elections}"), set()),
    "kafka.request.time.50p": (gauge("ms"), {"type"}),
    "kafka.request.time.99p": (gauge("ms"), {"type"}),
    "kafka.logs.flush.time.99p": (gauge("ms"), set()),
    "kafka.partition.current_offset": (gauge("1"), PLACE),
    "kafka.partition.oldest_offset": (gauge("1"), PLACE),
    "kafka.partition.replicas": (up_down("{replicas}"), PLACE),
    "kafka.partition.replicas_in_sync": (up_down("{replicas}"), PLACE),
    "kafka.topic.partitions": (up_down("{partitions}"), {"topic"}),
    "kafka.consumer_group.members": (up_down("{members}"), {"group"}),
    "kafka.consumer_group.offset": (gauge("1"), {"group", *PLACE}),
    "kafka.consumer_group.lag": (gauge("1"), {"group", *PLACE}),
    "kafka.consumer_group.offset_sum": (gauge("1"), {"group", "topic"}),
    "kafka.consumer_group.lag_sum": (gauge("1"), {"group", "topic"}),
    "process.cpu.time": (counter("s"), set()),
    "process.memory.usage": (up_down("By"), set()),
    "process.open_file_descriptor.count": (up_down("{file_descriptor}"), set()),
    # Every node tells it, and each tells all: it is a sum in the collector's own receiver, which asks once.
    "kafka.brokers": (gauge("{brokers}"), set()),
}
"""Metrics of OpenTelemetry's rules for Kafka's JMX, of the collector's kafkametricsreceiver and of its conventions for
processes: kind, and names of attributes."""


class Collector:
    """The collector with the recipe's configuration, on a port of its own."""

    def __init__(self, program: Program, directory: Path) -> None:
        (self.port,) = free_ports(1)
        own = (f"receivers.otlp.protocols.http.endpoint=127.0.0.1:{self.port}", "service.telemetry.metrics.level=none")
        settings = [f"--set={setting}" for setting in own]
        self._command: list[str | Path] = [program.binary(), "--config", program.file("collector.yaml"), *settings]
        self._directory = directory
        self._shown = Shown()
        self.running = self._start()

    def _start(self) -> Running:
        return Running(self._command, self._directory, "otelcol")

    def restart(self) -> None:
        """Start it again after it was killed."""
        self.running = self._start()

    def looks(self) -> dict[str, Look]:
        """The last complete look at each node that has sent one."""
        self._shown.read(self.running.output)
        return self._shown.last

    def await_looks(self, nodes: int) -> dict[str, Look]:
        """A look at each of so many nodes that has begun after this call."""
        self.looks()
        before = dict(self._shown.count)

        def are_there() -> bool:
            self.looks()
            newer = [node for node, count in self._shown.count.items() if count >= before.get(node, 0) + 2]
            return len(newer) == nodes

        self.running.until(are_there, f"to show {nodes} nodes", 120)
        return self.looks()

    def until(self, is_so: Callable[[list[Look]], bool], what: str) -> None:
        """Return once something holds of the last looks."""
        self.running.until(lambda: is_so(list(self.looks().values())), what, 120)


@pytest.fixture(scope="module")
def collector(
    request: pytest.FixtureRequest, program: Program, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collector]:
    if request.config.getoption("--broker") == "apache":
        pytest.skip("Apache Kafka sends no OTLP")
    if shutil.which("go") is None:
        pytest.skip("needs Go, by which the collector is built")
    it = Collector(program, tmp_path_factory.mktemp("otelcol"))
    try:
        yield it
    finally:
        it.running.kill()


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, collector: Collector) -> Iterator[Broker]:
    endpoint = f"otel.exporter.otlp.endpoint=http://127.0.0.1:{collector.port}"
    interval = f"otel.metric.export.interval={INTERVAL_MS}"
    yield from broker_under_test(request, endpoint, interval, default_nodes=NODES)


@pytest.fixture
def member(bootstrap: str) -> Iterator[Consumer]:
    """A member of the group billing, which has read a part of the orders."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def values(looks: dict[str, Look], name: str, **attributes: str | int) -> list[float]:
    """The values that the nodes tell of a series; a node that does not tell it is left out."""
    return [value for look in looks.values() if (value := look.value(name, **attributes)) is not None]


def test_the_collector_shows_what_three_nodes_know(
    broker: Broker, bootstrap: str, collector: Collector, member: Consumer, seen: Callable[..., None]
) -> None:
    nodes = node_count(broker)
    create_topics(bootstrap, {"orders": 3})
    member.subscribe(["orders"])
    wait_until(lambda: member.poll(0.1) is None and len(member.assignment()) == 3, "billing to have its partitions")
    write(bootstrap, "orders", [(f"customer {number % 17}", f"order {number}") for number in range(RECORDS)])
    places = [TopicPartition("orders", partition, READ // 3) for partition in range(3)]
    member.commit(offsets=places, asynchronous=False)

    def is_told(looks: list[Look]) -> bool:
        found = [look.value("kafka.consumer_group.lag_sum", group="billing", topic="orders") for look in looks]
        return len(looks) == nodes and [lag for lag in found if lag] == [RECORDS - READ]

    collector.until(is_told, "to show the group's lag")
    looks = collector.await_looks(nodes)
    named = {}
    for look in looks.values():
        for name, (kind, attributes) in OF_OPENTELEMETRY.items():
            if name in look.kinds:
                named[name] = kind
                assert look.kinds[name] == kind, name
                assert {key for series in look.points[name] for key, _ in series} <= attributes, name
        for name, kind in look.kinds.items():
            assert kind.temporality in ("", CUMULATIVE), name
            assert name in OF_OPENTELEMETRY or not kind.unit or "." in name, f"{name}: Prometheus would append the unit"
        assert look.resource["service.name"] == "kbroker"
    missing = OF_OPENTELEMETRY.keys() - named.keys() - {"kafka.logs.flush.time.99p"}
    assert not missing
    assert len({look.resource["kafka.cluster.id"] for look in looks.values()}) == 1
    assert sorted(looks) == [str(number + 1) for number in range(nodes)]

    assert sum(values(looks, TRAFFIC, topic="orders")) == RECORDS
    for (topic, partition), end in end_offsets(bootstrap, "orders").items():
        place: dict[str, str | int] = {"topic": topic, "partition": partition}
        assert values(looks, "kafka.partition.current_offset", **place) == [end]
        assert values(looks, "kafka.partition.replicas", **place) == [replicas_of(bootstrap, topic)]
        assert values(looks, "kafka.partition.replicas_in_sync", **place) == [replicas_of(bootstrap, topic)]
        offset = committed(bootstrap, "billing")[topic, partition]
        assert values(looks, "kafka.consumer_group.offset", group="billing", **place) == [offset]
        assert values(looks, "kafka.consumer_group.lag", group="billing", **place) == [end - offset]
    assert values(looks, "kafka.consumer_group.members", group="billing") == [1]
    assert values(looks, "kafka.brokers") == [nodes] * nodes
    assert sum(values(looks, "kafka.controller.active.count")) == 1
    assert sum(values(looks, "kafka.leader.count")) == sum(topics_of(bootstrap).values())
    times = [look.points["kafka_network_requestmetrics_totaltimems"] for look in looks.values()]
    for point in (point for series in times for point in series.values()):
        assert point.count == sum(point.buckets) > 0
    series = sum(len(points) for look in looks.values() for points in look.points.values())
    seen(
        f"{nodes} nodes: {len(named)} metrics under OpenTelemetry's names, with its units, types and attributes, and "
        f"{len(set().union(*(look.kinds for look in looks.values())) - named.keys())} under those of the page for "
        f"Prometheus; {series} series in all",
        f"{RECORDS} records are counted once among the nodes; offsets, replicas and the lag of a group "
        f"({RECORDS - READ}) are what another client is told",
    )


def test_what_is_lost_and_comes_back(
    broker: Broker, bootstrap: str, collector: Collector, seen: Callable[..., None]
) -> None:
    nodes = node_count(broker)
    create_topics(bootstrap, {"parcels": 1})
    write(bootstrap, "parcels", [(None, f"parcel {number}") for number in range(500)])
    dead = leader(bootstrap, "parcels")
    collector.until(lambda looks: sum(look.value(TRAFFIC, topic="parcels") or 0 for look in looks) == 500, "to count")
    since = {node: look.points["kafka.message.count"][()].since for node, look in collector.looks().items()}
    lines = []
    if nodes > 1:
        with without_a_node(broker, dead):

            def is_missed(looks: list[Look]) -> bool:
                others = [look for look in looks if look.resource["service.instance.id"] != str(dead)]
                return {look.value("kafka.brokers") for look in others} == {nodes - 1} and any(
                    look.total("kafka.partition.underReplicated") for look in others
                )

            collector.until(is_missed, "to show that a node is missing")

        def is_back(looks: list[Look]) -> bool:
            return {look.value("kafka.brokers") for look in looks} == {nodes} and not sum(
                look.total("kafka.partition.underReplicated") for look in looks
            )

        collector.until(is_back, "to show that the node is back")
        started = {node: look.points["kafka.message.count"][()].since for node, look in collector.looks().items()}
        assert {node for node in since if started[node] != since[node]} == {str(dead)}
        lines.append(
            f"a node was killed: the others told of {nodes - 1} brokers and of partitions that are under-replicated; "
            "when it was back, its counts began anew, with a new start time"
        )
    before = sum(values(collector.await_looks(nodes), TRAFFIC, topic="parcels"))
    collector.running.kill()
    write(bootstrap, "parcels", [(None, f"parcel {number}") for number in range(500, 1000)])
    collector.restart()
    looks = collector.await_looks(nodes)
    assert sum(values(looks, TRAFFIC, topic="parcels")) == before + 500
    assert {node: look.points["kafka.message.count"][()].since for node, look in looks.items()} == (
        started if nodes > 1 else since
    )
    seen(*lines, "the collector was killed and started again: the counts had gone on meanwhile")
