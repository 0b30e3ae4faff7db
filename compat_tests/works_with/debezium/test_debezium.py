"""Debezium tells the changes of a PostgreSQL table, each once and in order, while Connect and a node are killed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message

from compat_tests.brokers import Broker
from compat_tests.works_with.connect import Worker, run_script
from compat_tests.works_with.judge import leader, read, topics_of
from compat_tests.works_with.nodes import without_a_node
from compat_tests.works_with.postgres import Postgres, postgres_programs
from compat_tests.works_with.program import Program
from tests.patience import LONG

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(postgres_programs() is None, reason="needs PostgreSQL (apt-get install postgresql)"),
]
TOPIC = "shop.public.orders"
ROWS = 200
CHANGES = 1500

Row = dict[str, object] | None
Change = tuple[str, Row, Row]
"""The operation (r, c, u, d), and the row before and after it."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


class Shop:
    """The orders as they should be, and every change that was made."""

    def __init__(self) -> None:
        self._rng = random.Random(20)
        self.rows: dict[int, dict[str, object]] = {}
        self.changes: dict[int, list[Change]] = defaultdict(list)
        for number in range(1, ROWS + 1):
            self._put("r", number, f"customer {number % 7}", f"{number}.50")

    def _put(self, operation: str, number: int, customer: str, amount: str) -> None:
        before, after = self.rows.get(number), {"id": number, "customer": customer, "amount": amount}
        # A snapshot tells no row before, as an insert does.
        self.changes[number].append((operation, before, after))
        self.rows[number] = after

    def change(self, count: int) -> str:
        """The statements of so many changes."""
        return "".join(self._one() for _ in range(count))

    def _one(self) -> str:
        kind = self._rng.choice(("insert", "update", "update", "delete"))
        if kind == "insert" or len(self.rows) < 10:
            number = max(self.changes) + 1
            amount = f"{self._rng.randrange(10_000)}.25"
            self._put("c", number, "näher & 'weiter'", amount)
            return f"INSERT INTO orders VALUES ({number}, 'näher & ''weiter''', {amount});\n"
        number = self._rng.choice(sorted(self.rows))
        if kind == "delete":
            self.changes[number].append(("d", self.rows.pop(number), None))
            return f"DELETE FROM orders WHERE id = {number};\n"
        amount = f"{self._rng.randrange(10_000)}.75"
        self._put("u", number, str(self.rows[number]["customer"]), amount)
        return f"UPDATE orders SET amount = {amount} WHERE id = {number};\n"

    @property
    def events(self) -> int:
        """The number of records that tell of the changes; a delete is followed by a tombstone."""
        return sum(1 + (operation == "d") for changes in self.changes.values() for operation, _, _ in changes)


def told(messages: list[Message]) -> dict[int, list[Change]]:
    """The changes that the records tell, by the row's id. A tombstone must follow each delete."""
    found: dict[int, list[Change]] = defaultdict(list)
    deleted: set[int] = set()
    for message in messages:
        number, content = json.loads(message.key() or b"")["id"], message.value()
        if content is None:
            deleted.remove(number)
            continue
        assert number not in deleted
        event = json.loads(content)
        found[number].append((event["op"], event["before"], event["after"]))
        if event["op"] == "d":
            deleted.add(number)
    assert not deleted
    return found


def test_changes_arrive_once_while_connect_and_a_node_are_killed(
    program: Program, broker: Broker, postgres: Postgres, tmp_path: Path, seen: Callable[..., None]
) -> None:
    bootstrap, shop = broker.bootstrap, Shop()
    postgres.sql(program.file("shop.sql").read_text())
    with Worker(program, bootstrap, tmp_path, "worker", {"POSTGRES_PORT": str(postgres.port)}) as worker:
        worker.await_ready()
        run_script(program, "connector.sh", CONNECT=worker.address)
        worker.await_running("shop")
        worker.running.until(lambda: TOPIC in topics_of(bootstrap), "to create the topic")
        assert told(read(bootstrap, TOPIC, ROWS)) == shop.changes

        for _ in range(20):
            postgres.sql(shop.change(CHANGES // 60))
        worker.kill()
        for _ in range(20):
            postgres.sql(shop.change(CHANGES // 60))
        worker.launch()
        worker.await_ready()
        with without_a_node(broker, leader(bootstrap, TOPIC)):
            for _ in range(20):
                postgres.sql(shop.change(CHANGES // 60))
            messages = read(bootstrap, TOPIC, shop.events, seconds=LONG, more=3)

    assert told(messages) == shop.changes
    assert sorted(shop.rows) == [int(line) for line in postgres.sql("SELECT id FROM orders ORDER BY id")]
    counts = {
        name: sum(operation == letter for changes in shop.changes.values() for operation, _, _ in changes)
        for letter, name in (("c", "inserts"), ("u", "updates"), ("d", "deletes"))
    }
    told_counts = ", ".join(f"{count} {name}" for name, count in counts.items())
    seen(
        f"PostgreSQL {postgres.version()}: the snapshot has all {ROWS} rows",
        f"{told_counts} are told once each and in order for each row, with the row before and after, "
        "though Connect and a node were killed meanwhile",
    )
