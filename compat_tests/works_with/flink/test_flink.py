"""Apache Flink counts orders exactly once, though it and a node are killed in the middle of transactions."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException

from compat_tests.brokers import Broker
from compat_tests.cluster.load import read_all
from compat_tests.works_with.java import NEEDS_JAVA, class_path
from compat_tests.works_with.judge import await_no_lag, create_topics, end_offsets, leader, read, text_of, write
from compat_tests.works_with.nodes import node_count, without_a_node
from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, wait_until

pytestmark = NEEDS_JAVA

CUSTOMERS = [f"customer-{number:02d}" for number in range(20)]


class Orders:
    """Writes orders until it is stopped, and knows how many each customer has."""

    def __init__(self, bootstrap: str) -> None:
        self.count: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        chance = random.Random(1)
        try:
            while not self._ended.wait(0.2):
                batch = chance.choices(CUSTOMERS, k=50)
                write(self._bootstrap, "orders", [(None, customer) for customer in batch])
                self.count.update(batch)
        except Exception as error:
            self._failed.append(error)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        assert not self._failed, self._failed


def results(bootstrap: str) -> int:
    """Count the records that have been appended to the results so far, committed or not."""
    return sum(end_offsets(bootstrap, "counts").values())


def await_results(job: Running, bootstrap: str, wanted: int) -> None:
    """Return once the job has written so many results."""

    def are_there() -> bool:
        try:
            return results(bootstrap) >= wanted
        except KafkaException:  # it asked the node that was just killed
            return False

    job.until(are_there, f"to write {wanted} results", 90)


def test_each_order_is_counted_once(
    broker: Broker, bootstrap: str, program: Program, seen: Callable[..., None], tmp_path: Path
) -> None:
    create_topics(bootstrap, {"orders": 3, "counts": 3})
    environment = {
        "KAFKA": bootstrap,
        "CHECKPOINTS": str(tmp_path / "checkpoints"),
        "CLASSPATH": class_path(program, "Counts.java"),
    }
    orders = Orders(bootstrap)
    kills = 0
    try:
        for number, naming in enumerate(("INCREMENTING", "INCREMENTING", "POOLING", "POOLING")):
            name = f"run-{number}-{naming}"
            with Running(["sh", program.file("run.sh")], tmp_path, name, {**environment, "NAMING": naming}) as job:
                if number:
                    job.await_output("goes on from chk-")
                before = results(bootstrap)
                await_results(job, bootstrap, before + 400)
                if number == 3:
                    with without_a_node(broker, leader(bootstrap, "counts")):
                        await_results(job, bootstrap, before + 1000)
                    await_results(job, bootstrap, before + 1400)
                    orders.stop()
                    await_no_lag(bootstrap, "counts", "orders", 90)
                    wait_until(lambda: job.process.poll() is None, "the job to live")
                else:
                    job.kill()
                    kills += 1
    finally:
        orders.stop()
    total = orders.count.total()
    counted: dict[str, list[int]] = defaultdict(list)
    for message in read(bootstrap, "counts", total, 60, more=3):
        counted[text_of(message.key())].append(int(text_of(message.value())))
    for customer, count in orders.count.items():
        assert counted.pop(customer) == list(range(1, count + 1)), customer
    assert not counted
    appended = sum(len(records) for records in read_all(bootstrap, "counts", 3).values())
    assert appended > total, "nothing was aborted: the job was not killed in the middle"
    seen(
        f"{total} orders of {len(orders.count)} customers were counted while the job was killed {kills} times (SIGKILL)"
        f" and started again from its last checkpoint{', and a node was killed' if node_count(broker) > 1 else ''}: a"
        " read_committed consumer saw each count from 1 on, once and in order",
        f"{appended - total} more results were written in transactions that Flink aborted; no consumer saw them",
        "both ways to name transactions: INCREMENTING, and POOLING, which asks the brokers for open transactions",
        "the group's committed offsets were at the end of the orders",
    )
