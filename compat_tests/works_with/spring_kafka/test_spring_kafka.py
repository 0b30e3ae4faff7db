"""Spring Kafka: transactions, retry topics with a dead-letter topic, a share group; instances and a node are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from compat_tests.cluster.load import read_all
from compat_tests.works_with.java import NEEDS_JAVA, class_path
from compat_tests.works_with.judge import (
    await_no_lag,
    coordinator,
    create_topics,
    end_offsets,
    leader,
    members,
    read,
    text_of,
    topics_of,
    write,
)
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until

pytestmark = NEEDS_JAVA

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def recipes(program: Program) -> str:
    """The class path of the three applications."""
    return class_path(program, "Invoices.java", "Payments.java", "Jobs.java")


@pytest.fixture
def start(bootstrap: str, program: Program, recipes: str, tmp_path: Path) -> Start:
    """Start an application of the recipe."""

    def run(name: str, instance: str = "1") -> Running:
        environment = {"KAFKA": bootstrap, "CLASSPATH": recipes}
        return Running(["sh", program.file("run.sh"), name], tmp_path, f"{name}-{instance}", environment)

    return run


def written(bootstrap: str, topic: str) -> int:
    """Count the records that have been appended to a topic so far, markers of transactions included."""
    return sum(end_offsets(bootstrap, topic).values())


def test_each_order_has_one_invoice(broker: Broker, bootstrap: str, start: Start, seen: Callable[..., None]) -> None:
    create_topics(bootstrap, {"orders": 3, "invoices": 3})
    orders = [f"order {number}" for number in range(600)]
    write(bootstrap, "orders", [(order, order) for order in orders[:300]])
    with ExitStack() as running:
        instances = [running.enter_context(start("Invoices", str(number))) for number in range(2)]
        for instance in instances:
            instance.await_output("Started Invoices", 90)
        instances[1].until(lambda: written(bootstrap, "invoices") >= 100, "to write 100 invoices", 90)
        write(bootstrap, "orders", [(order, order) for order in orders[300:450]])
        instances[0].kill()
        own = [1, 1, 1]  # a partition for each thread of the instance that is left
        wait_until(lambda: [*members(bootstrap, "invoices").values()] == own, "the other instance to take over", 90)
        with without_a_node(broker, coordinator(bootstrap, "invoices")):
            write(bootstrap, "orders", [(order, order) for order in orders[450:]])
            found = read(bootstrap, "invoices", len(orders), 120, more=3)
            assert Counter(text_of(each.value()) for each in found) == {f"invoice of {order}": 1 for order in orders}
            await_no_lag(bootstrap, "invoices", "orders", 90)
    appended = sum(len(records) for records in read_all(bootstrap, "invoices", 3).values())
    refused = sum(order.endswith("7") for order in orders)
    assert appended >= len(orders) + refused
    seen(
        f"Invoices: {len(orders)} orders became {len(orders)} invoices, each once, by two instances of three"
        f" threads each; one was killed (SIGKILL), and the threads of the other took over"
        + ("; a node was killed, too" if node_count(broker) > 1 else ""),
        f"Invoices: {refused} orders were refused at first; {appended - len(orders)} invoices of transactions that were"
        " rolled back stayed unseen",
    )


def test_what_fails_is_tried_again_and_put_aside(bootstrap: str, start: Start, seen: Callable[..., None]) -> None:
    create_topics(bootstrap, {"payments": 3, "booked": 1})
    kinds = ["at once", "later", "never"]
    payments = {f"payment {number}": kinds[number % 3] for number in range(60)}
    write(bootstrap, "payments", payments.items())
    with start("Payments") as application:
        application.await_output("Started Payments", 90)
        booked = {text_of(message.key()): text_of(message.value()) for message in read(bootstrap, "booked", 40, 90)}
        aside = read(bootstrap, "payments-dlt", 20, 90)
        never = {key for key, kind in payments.items() if kind == "never"}
        application.until(lambda: application.output.count("put aside: ") >= len(never), "to handle what is put aside")
    assert booked == {
        key: f"{kind} {1 if kind == 'at once' else 3}" for key, kind in payments.items() if kind != "never"
    }
    assert Counter(text_of(message.key()) for message in aside) == dict.fromkeys(never, 1)
    headers = dict(aside[0].headers() or [])
    assert headers["kafka_original-topic"] == b"payments", headers
    assert b"the bank is closed" in (headers["kafka_exception-message"] or b"")
    retries = sorted(name for name in topics_of(bootstrap) if name.startswith("payments-retry"))
    assert len(retries) == 2, retries
    seen(
        f"Payments: of {len(payments)}, {len(payments) // 3} were booked at once and {len(payments) // 3} at the third"
        f" attempt, through the topics {' and '.join(retries)}; {len(never)} were put aside in payments-dlt, with what"
        " went wrong in their headers"
    )


def test_workers_share_a_queue(broker: Broker, bootstrap: str, start: Start, seen: Callable[..., None]) -> None:
    create_topics(bootstrap, {"jobs": 1, "done": 1})
    kinds = ["now", "now", "later", "impossible"]
    jobs = {f"job {number}": kinds[number % 4] for number in range(120)}
    wanted = sum(kind != "impossible" for kind in jobs.values())
    write(bootstrap, "jobs", list(jobs.items())[:80])
    with start("Jobs") as application:
        application.await_output("Started Jobs", 90)
        read(bootstrap, "done", 40, 90)
        with without_a_node(broker, leader(bootstrap, "jobs")):
            write(bootstrap, "jobs", list(jobs.items())[80:])
            done = read(bootstrap, "done", wanted, 90, more=3)
    by_job = {text_of(message.key()): text_of(message.value()).split() for message in done}
    assert set(by_job) == {key for key, kind in jobs.items() if kind != "impossible"}
    assert {int(words[1]) >= 2 for key, words in by_job.items() if jobs[key] == "later"} == {True}
    workers = {words[2] for words in by_job.values()}
    assert len(workers) == 3, workers
    doubled = len(done) - wanted
    seen(
        f"Jobs: {wanted} jobs of one partition were done by {len(workers)} workers at the same time, {doubled} of them"
        " twice; those for later were released and came again; the impossible ones were rejected and did not"
    )
