"""The fast cases on clusters of other shapes: half of them on each, through one of two clients in turn.

``pytest compat_tests/kcat --shape apart-3.3`` has any client's whole suite on a shape.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.case import Case, Context, settled
from compat_tests.cases import CASES
from compat_tests.client import EARLIEST, Record
from compat_tests.clients import Clients, unavailable
from compat_tests.shapes.shaped import SHAPES, ShapedCluster

TESTED = ("apart", "log-dirs-3", "3.9", "apart-3.3")

CLIENTS = ("confluent-kafka", "kafka-python")
JAVA = ("confluent-kafka", "java")
"""A process more, which is only had where there are few others."""

SLOW = {"larger_message", "long_poll", "many_records", "min_bytes", "restart"}
"""These wait, or move much; restarts have a case of their own here."""


class Running:
    """The cluster of one shape at a time, and clients of it."""

    def __init__(self) -> None:
        self._shape = ""
        self._cluster: ShapedCluster | None = None
        self._clients: Clients | None = None

    def of(self, shape: str) -> tuple[ShapedCluster, Clients]:
        """The cluster of this shape, which takes the place of one of another."""
        if self._cluster is None or self._clients is None or shape != self._shape:
            self.close()
            self._shape, self._cluster = shape, ShapedCluster(SHAPES[shape])
            self._clients = Clients(self._cluster.bootstrap)
        return self._cluster, self._clients

    def close(self) -> None:
        """End it."""
        cluster, self._cluster = self._cluster, None
        if self._clients is not None:
            self._clients.close()
        if cluster is not None:
            cluster.stop()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """The clusters that run at the moment."""
    made = Running()
    yield made
    made.close()


def restarts_and_a_kill_of_all(context: Context) -> None:
    """Acknowledged records are there after a restart of a broker, and after a kill of all nodes."""
    cluster = context.broker
    assert isinstance(cluster, ShapedCluster)
    topic = context.topic(partitions=3)
    expected: dict[int, list[bytes | None]] = {partition: [] for partition in range(3)}

    def write(hint: str) -> None:
        idempotent = "idempotent_producer" in context.client.features
        for partition, values in expected.items():
            records = [Record(f"{hint} {number}".encode(), partition=partition) for number in range(20)]
            context.client.produce(topic, records, idempotent=idempotent)
            values += [record.value for record in records]

    def values_of(partition: int) -> list[bytes | None]:
        return [record.value for record in context.peer.read(topic, partition, EARLIEST, len(expected[partition]))]

    def check() -> None:
        assert settled(lambda: {partition: values_of(partition) for partition in expected}) == expected

    write("before")
    cluster.restart(cluster.nodes[:1])
    check()
    write("between")
    cluster.crash()
    check()
    write("after")
    check()


def a_topic_made_on_first_use(context: Context) -> None:
    """It has as many partitions as the broker's properties say, where the controller's say nothing."""
    cluster = context.broker
    assert isinstance(cluster, ShapedCluster)
    topic = context.name("auto")
    context.client.produce(topic, [Record(b"first")])
    partitions = int(cluster.shape.of_brokers["num.partitions"])
    assert settled(lambda: context.peer.partition_count(topic)) == partitions == 4


KEPT = Case("restarts_and_a_kill_of_all", "Keeping", "restarts", frozenset(), restarts_and_a_kill_of_all)
FIRST_USE = Case("first_use", "Topics", "first use", frozenset({"auto_create_topic"}), a_topic_made_on_first_use)
FAST = [case for case in CASES if case.name not in SLOW]


def turns() -> list[object]:
    """Each shape with every other case, the next shape with those between, and whose turn among the clients it is."""
    found: list[object] = []
    for place, shape in enumerate(TESTED):
        cases = [case for number, case in enumerate(FAST) if number % 2 == place % 2]
        cases += [FIRST_USE, FIRST_USE] if SHAPES[shape].of_brokers else []
        found += [
            pytest.param(shape, case, turn, id=f"{shape}-{case.name}-{turn}")
            for turn, case in enumerate([*cases, KEPT])
        ]
    return found


@pytest.mark.parametrize(("shape", "case", "turn"), turns())
def test_case(running: Running, shape: str, case: Case, turn: int) -> None:
    cluster, clients = running.of(shape)
    names = JAVA if len(cluster.nodes) < 3 else CLIENTS
    able = [name for name in names if unavailable(name) is None and not case.missing(clients[name])]
    if not able:
        pytest.skip(f"no client here has what {case.name} needs")
    name = able[turn % len(able)]
    peer = "kafka-python" if name == "confluent-kafka" else "confluent-kafka"
    case.run(Context(clients[name], cluster, clients[peer]))
