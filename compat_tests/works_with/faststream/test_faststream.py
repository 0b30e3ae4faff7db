"""FastStream: two processes of a service share a topic; one is killed, then a node, and no order is forgotten."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from compat_tests.brokers import Broker
from compat_tests.works_with.judge import await_no_lag, coordinator, create_topics, members, read_until, text_of, write
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until

GROUP = "invoicing"


def order(number: int) -> tuple[str, str]:
    """Key and value of the n-th order."""
    return f"customer-{number % 17}", json.dumps({"number": number, "pieces": number % 5 + 1, "price": 2.5})


def test_orders_become_invoices(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"orders": 6, "invoices": 3})
    faststream = str(program.python().with_name("faststream"))
    command = [faststream, "run", "recipe:app", "--app-dir", str(program.folder)]
    environment = {"KAFKA": bootstrap}
    with Running(command, tmp_path, "one", environment) as one, Running(command, tmp_path, "two", environment) as two:
        one.until(lambda: sorted(members(bootstrap, GROUP).values()) == [3, 3], "to share the partitions", 120)
        write(bootstrap, "orders", (order(number) for number in range(300)))
        await_no_lag(bootstrap, GROUP, "orders")
        first = invoices(bootstrap, 300)
        makers = {invoice["made_by"] for _, invoice in first}
        assert len(first) == 300 and makers == {one.process.pid, two.process.pid}

        two.kill()
        write(bootstrap, "orders", (order(number) for number in range(300, 600)))
        one.until(lambda: list(members(bootstrap, GROUP).values()) == [6], "to take over the partitions", 120)
        await_no_lag(bootstrap, GROUP, "orders")

        with without_a_node(broker, coordinator(bootstrap, GROUP)):
            write(bootstrap, "orders", (order(number) for number in range(600, 900)))
            await_no_lag(bootstrap, GROUP, "orders")
        assert one.stop() == 0
        wait_until(lambda: not members(bootstrap, GROUP), "the group to be empty")

    found = invoices(bootstrap, 900)
    times = Counter(invoice["order"] for _, invoice in found)
    assert set(times) == set(range(900))
    for key, invoice in found:
        wanted_key, wanted = order(invoice["order"])
        assert (key, invoice["total"]) == (wanted_key, (json.loads(wanted)["pieces"]) * 2.5)
    seen(
        "two processes in one group had three of six partitions each, and made 300 invoices of 300 orders, each once",
        "one was killed: the other took over its partitions; the coordinator of the group was killed: the work went on",
        f"900 orders: {len(times)} of them have an invoice, {len(found) - len(times)} are there twice (at least once)",
        "told to stop, the service left its group and ended with exit code 0",
    )


def invoices(bootstrap: str, orders: int) -> list[tuple[str, dict[str, int]]]:
    """Keys and values of the invoices, once there are some of so many orders."""
    found = read_until(
        bootstrap,
        "invoices",
        lambda messages: len({json.loads(message.value() or b"{}")["order"] for message in messages}) >= orders,
    )
    return [(text_of(message.key()), json.loads(message.value() or b"{}")) for message in found]
