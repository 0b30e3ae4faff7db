"""A cluster in which something is wrong: a record that its consumer cannot read, a transaction that nobody ends.

    python -m compat_tests.console.story HOST:PORT

It goes on until it is interrupted: for a person who tries the console as somebody who has not read its page.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.console.world import make_topics
from kbroker.client.topics import NewTopic
from tests.patience import LONG, SHORT

ORDERS = 300
BAD = 157
"""The order that is cut in the middle."""


class Story:
    """``billing`` reads orders, and fails at one. ``ledger`` reads payments that are committed; the transaction of
    ``settlement`` stays open there, and from the first of the invoices on, of which ``mailer`` has committed none.
    ``checkout`` commits a transaction every few seconds."""

    def __init__(self, bootstrap: str, run: str | None = None) -> None:
        self.bootstrap = bootstrap
        end = "" if run == "" else f"-{run or uuid.uuid4().hex[:6]}"
        self.orders, self.payments, self.shipments = f"orders{end}", f"payments{end}", f"shipments{end}"
        self.invoices = f"invoices{end}"
        self.billing, self.ledger, self.mailer = f"billing{end}", f"ledger{end}", f"mailer{end}"
        self.settlement, self.checkout = f"settlement{end}", f"checkout{end}"
        self.bad: tuple[int, int] = (-1, -1)
        """Partition and offset of the order that is cut."""
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._settlement: Any = None

    def begin(self) -> None:
        """Write the records, and start the programs."""
        make_topics(self.bootstrap, *(NewTopic(name, 3, -1) for name in (self.orders, self.payments, self.shipments)))
        make_topics(self.bootstrap, NewTopic(self.invoices, 1, -1))
        self._take_orders()
        self._open_settlement()
        for work in (self._bill, self._keep_ledger, self._mail, self._check_out):
            thread = threading.Thread(target=work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """End the programs; the transaction stays as it is."""
        self._over.set()
        for thread in self._threads:
            thread.join(SHORT)
        self._settlement = None

    def _producer(self, **more: str) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 2, "enable.idempotence": True, **more})

    def _take_orders(self) -> None:
        producer = self._producer(**{"client.id": "shop"})

        def stored(_: object, message: Any) -> None:
            self.bad = (message.partition(), message.offset())

        for number in range(ORDERS):
            order = {"id": number, "customer": number % 40, "total": round(number * 1.25, 2), "state": "paid"}
            text = json.dumps(order)
            if number == BAD:
                producer.produce(self.orders, text[:31], f"order-{number}", on_delivery=stored)
            else:
                producer.produce(self.orders, text, f"order-{number}")
        assert producer.flush(LONG) == 0

    def _open_settlement(self) -> None:
        plain = self._producer(**{"client.id": "terminal"})
        held = self._producer(**{"transactional.id": self.settlement, "transaction.timeout.ms": "600000"})
        held.init_transactions(LONG)
        for number in range(10):
            plain.produce(self.payments, json.dumps({"payment": number}), partition=0)
        assert plain.flush(LONG) == 0
        held.begin_transaction()
        held.produce(self.payments, json.dumps({"settlement": 1}), partition=0)
        held.produce(self.invoices, json.dumps({"invoice": 1}), partition=0)
        assert held.flush(LONG) == 0
        for number in range(10, 25):
            plain.produce(self.payments, json.dumps({"payment": number}), partition=0)
        assert plain.flush(LONG) == 0
        self._settlement = held

    @contextlib.contextmanager
    def _consumer(self, group: str, topic: str, **more: str) -> Iterator[Any]:
        from confluent_kafka import Consumer

        settings = {"group.id": group, "client.id": f"{group}-1", "auto.offset.reset": "earliest", "log_level": 2}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings, **more})
        consumer.subscribe([topic])
        try:
            yield consumer
        finally:
            consumer.close()

    def _read(self, consumer: Any, work: Callable[[Any], None]) -> None:
        """Commit each record that is worked on; come back to one that fails, as frameworks do."""
        from confluent_kafka import KafkaException, TopicPartition

        back = None  # the place of the record that has failed
        while not self._over.is_set():
            if back is not None:
                try:
                    consumer.seek(back)
                except KafkaException:  # not while partitions are being assigned
                    self._over.wait(0.1)
                    continue
                back = None
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            try:
                work(message)
            except ValueError:
                back = TopicPartition(message.topic(), message.partition(), message.offset())
                self._over.wait(0.5)
            else:
                consumer.commit(message=message, asynchronous=True)

    def _bill(self) -> None:
        with self._consumer(self.billing, self.orders) as consumer:
            self._read(consumer, lambda message: json.loads(message.value()))

    def _keep_ledger(self) -> None:
        with self._consumer(self.ledger, self.payments, **{"isolation.level": "read_committed"}) as consumer:
            self._read(consumer, lambda message: None)

    def _mail(self) -> None:
        with self._consumer(self.mailer, self.invoices, **{"isolation.level": "read_committed"}) as consumer:
            self._read(consumer, lambda message: None)

    def _check_out(self) -> None:
        producer = self._producer(**{"transactional.id": self.checkout})
        producer.init_transactions(LONG)
        while not self._over.is_set():
            producer.begin_transaction()
            for number in range(3):
                producer.produce(self.shipments, json.dumps({"parcel": number}), partition=number)
            producer.flush(LONG)
            self._over.wait(3)
            producer.commit_transaction(LONG)
            self._over.wait(3)


def main() -> None:
    """Tell the story to a cluster whose address is the argument, until Ctrl-C."""
    story = Story(sys.argv[1], "")
    story.begin()
    print(f"the order that is cut: partition {story.bad[0]}, offset {story.bad[1]}", flush=True)
    try:
        time.sleep(1e6)
    except KeyboardInterrupt:
        story.end()


if __name__ == "__main__":
    main()
