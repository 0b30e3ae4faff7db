"""A cluster for the console to show: topics with records, a group that is behind, a transaction that is open."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from compat_tests.case import await_everywhere
from kbroker.client import Client
from kbroker.client.groups import commit_offsets
from kbroker.client.producer import Producer
from kbroker.client.topics import NewTopic, create_topics
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record
from tests.patience import LONG

STAYS = {"session.timeout.ms": 300_000, "max.poll.interval.ms": 3_600_000}
"""For a member that is only looked at: it stays, though nobody polls and however slow the machine is."""

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def make_topics(bootstrap: str, *topics: NewTopic) -> None:
    """Create topics, and wait until each broker knows them: the console asks whichever it likes."""
    with Client(bootstrap) as client:
        for result in create_topics(client, topics).values():
            assert not isinstance(result, Exception), result
    for topic in topics:
        await_everywhere(bootstrap, topic.name, topic.partitions)


class World:
    """Names are of this run alone: the broker may have topics of other tests."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.run = f"x{uuid.uuid4().hex[:5]}"
        """The part of their names that finds these topics and no other: a test that makes one takes it backwards."""
        self.orders = f"shop-{self.run}.eu.orders"
        self.masked = f"shop-{self.run}.eu.payments"
        self.live = f"shop-{self.run}.us.clicks"
        self.empty = f"shop-{self.run}.us.returns"
        self.group = f"billing-{self.run}"
        self.transaction = f"mover-{self.run}"
        self.now = time.time_ns() // 1_000_000
        self._transactional: Any = None
        names = (self.orders, self.masked, self.live, self.empty)
        make_topics(bootstrap, *(NewTopic(name, 3, 1, {"retention.ms": "86400000"}) for name in names))
        with Client(bootstrap) as client:
            self._fill(client)
            refused = commit_offsets(
                client, self.group, {TopicPartition(self.orders, number): 100 for number in range(3)}
            )
            assert not refused

    def _fill(self, client: Client) -> None:
        orders = [
            Record(
                0,
                self.now - 3_600_000 + number * 1000,
                f"order-{number % 40}".encode(),
                json.dumps(
                    {
                        "id": number,
                        "customer": {"id": number % 40, "email": f"c{number % 40}@example.com"},
                        "total": round(number * 1.25, 2),
                        "state": ("new", "paid", "sent")[number % 3],
                    }
                ).encode(),
                (("trace", f"t-{number}".encode()),),
            )
            for number in range(900)
        ]
        orders += [
            Record(0, self.now - 2000, b"hostile", HOSTILE.encode()),
            Record(0, self.now - 1000, b"bytes", bytes(range(256))),
            Record(0, self.now, b"order-1", None),
        ]
        self._produce(client, self.orders, orders)
        card = {"card": "number-4111-1111", "amount": 12.5}
        payment = Record(0, self.now, b"p-1", json.dumps(card).encode(), (("secret", b"hidden-header"),))
        self._produce(client, self.masked, [payment])

    @staticmethod
    def _produce(client: Client, topic: str, records: list[Record]) -> None:
        refused: list[object] = []
        producer = Producer(client, topic, client.partitions_of(topic), on_refused=refused.append)
        for number, record in enumerate(records):
            producer.send(record, number)
        producer.flush()
        assert refused == []

    def click(self, *texts: str) -> None:
        """Records with these values, for the live tail."""
        with Client(self.bootstrap) as client:
            now = time.time_ns() // 1_000_000
            self._produce(client, self.live, [Record(0, now, None, text.encode()) for text in texts])

    def open_transaction(self) -> None:
        """A transaction that has written a record, and is left open."""
        import confluent_kafka

        patient = {"transactional.id": self.transaction, "transaction.timeout.ms": 600_000}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **patient})
        producer.init_transactions(LONG)
        producer.begin_transaction()
        producer.produce(self.empty, b"not yet committed", partition=0)
        assert producer.flush(LONG) == 0
        self._transactional = producer

    def close(self) -> None:
        """Let go of what is open."""
        self._transactional = None
