"""Apache Camel lets each order pass once, though it comes twice, Camel is started again, and a node is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from compat_tests.brokers import Broker
from compat_tests.works_with.java import NEEDS_JAVA, class_path
from compat_tests.works_with.judge import await_no_lag, coordinator, create_topics, read, text_of, write
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running

pytestmark = NEEDS_JAVA


def test_each_order_passes_once(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"orders": 3, "checked": 3, "orders-seen": 1})
    environment = {"KAFKA": bootstrap, "CLASSPATH": class_path(program, "Orders.java")}
    orders = [(f"customer-{number % 20}", f"order {number}") for number in range(600)]

    def start(name: str) -> Running:
        return Running(["sh", program.file("run.sh")], tmp_path, name, environment)

    write(bootstrap, "orders", orders[:300])
    with start("first") as first:
        read(bootstrap, "checked", 300, 90)
        write(bootstrap, "orders", orders[:400])
        await_no_lag(bootstrap, "orders", "orders", 60)
        first.stop()
    with start("second") as second:
        with without_a_node(broker, coordinator(bootstrap, "orders")):
            write(bootstrap, "orders", orders)
            found = read(bootstrap, "checked", len(orders), 90, more=3)
            await_no_lag(bootstrap, "orders", "orders", 60)
        second.stop()
    passed = Counter((text_of(message.key()), text_of(message.value())) for message in found)
    assert passed == {(customer, f"checked {order}"): 1 for customer, order in orders}
    remembered = len(read(bootstrap, "orders-seen", len(orders)))
    seen(
        f"of 1300 orders, {len(orders)} different ones, each passed once with its key, though Camel was stopped and"
        f" started again in the middle{', and a node was killed' if node_count(broker) > 1 else ''}",
        f"the topic orders-seen, by which it remembers, had {remembered} records",
    )
