"""Kafka Streams: totals by two instances, of which one is killed, and a node, too; each step is there once."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from compat_tests.brokers import Broker, broker_under_test
from compat_tests.works_with.conftest import NODES
from compat_tests.works_with.java import NEEDS_JAVA, class_path
from compat_tests.works_with.judge import coordinator, create_topics, read, text_of, topics_of, write
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running

pytestmark = NEEDS_JAVA

OPTIONS = (
    "group.streams.min.session.timeout.ms=6000",
    "group.streams.session.timeout.ms=6000",
    "group.streams.min.heartbeat.interval.ms=1000",
    "group.streams.heartbeat.interval.ms=1000",
)
"""An instance that is killed is given up after six seconds, not 45."""


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    yield from broker_under_test(request, *OPTIONS, default_nodes=NODES)


def test_totals_of_each_customer(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"payments": 4, "totals": 4})
    classes = class_path(program, "Totals.java")
    chance = random.Random(1)
    payments = [(f"customer-{chance.randrange(20):02d}", str(chance.randrange(1, 10_000))) for _ in range(2_000)]

    def start(name: str) -> Running:
        environment = {"KAFKA": bootstrap, "CLASSPATH": classes, "STATE": str(tmp_path / name)}
        return Running(["sh", program.file("run.sh")], tmp_path, name, environment)

    write(bootstrap, "payments", payments[:500])
    with start("one") as one, start("two") as two:
        for instance in (one, two):
            instance.await_output("state: RUNNING", 90)
        write(bootstrap, "payments", payments[500:1000])
        assert len(read(bootstrap, "totals", 1000, 90)) == 1000, two.output
        two.kill()
        write(bootstrap, "payments", payments[1000:1500])
        assert len(read(bootstrap, "totals", 1500, 120)) == 1500, one.output
        with without_a_node(broker, coordinator(bootstrap, "totals")):
            write(bootstrap, "payments", payments[1500:])
            found = read(bootstrap, "totals", len(payments), 120, more=3)
        one.stop()
    paid: dict[str, list[int]] = defaultdict(list)
    totals: dict[str, list[int]] = defaultdict(list)
    for customer, cents in payments:
        paid[customer].append(int(cents))
    for message in found:
        totals[text_of(message.key())].append(int(text_of(message.value())))
    assert totals == {customer: list(accumulate(amounts)) for customer, amounts in paid.items()}
    own = sorted(name for name in topics_of(bootstrap) if name.startswith("totals-"))
    seen(
        f"{len(payments)} payments of {len(paid)} customers: each total is there once and in order, though one of two"
        f" instances was killed (SIGKILL){', and then a node' if node_count(broker) > 1 else ''}",
        f"its own topics: {', '.join(own)}",
    )
