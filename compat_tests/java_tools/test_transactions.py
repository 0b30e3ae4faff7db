"""kafka-transactions, about transactions that are committed, open, and hang."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison, Side
from kbroker.client import Client
from kbroker.client.transactions import describe_producers
from kbroker.types import TopicPartition
from kbroker.wire.messages.transactions import InitProducerIdResponse
from tests.hanging_transactions import init_unknown, write_unknown
from tests.patience import LONG, eventually

OWN = (
    (r"\b1[789]\d{11}\b", "TIME"),
    (r"(?m)^(\d+ *\t[a-z]+ *\t.*\tTIME *\t)\d+ *(?=\t|$)", r"\1MS"),  # describe: how long it took
    (r"(?m)^([a-z]+ *\t\d+ *\t)\d+( *\t\w+)", r"\1ID\2"),  # list: TransactionalId, Coordinator, ProducerId, State
    # describe: CoordinatorId, TransactionalId, ProducerId, ProducerEpoch, TransactionState
    (r"(?m)^(\d+ *\t[a-z]+ *\t)\d+ *\t(?=\d+ *\t[A-Z][a-z]+)", r"\1ID\t"),
    # describe-producers: ProducerId, ProducerEpoch, LatestCoordinatorEpoch, LastSequence
    (r"(?m)^\d+ *\t(?=\d+ *\t-?\d+ *\t-?\d+ *\t)", "ID\t"),
)
"""Ids and times are each broker's own; how long a transaction takes depends on the moment."""


HANGING = (*OWN, (r"(?m)^(hanging *\t\d+ *\t)\d+( *\t.*\tTIME *\t)\d+ *$", r"\1ID\2MINUTES"))
"""find-hanging: Topic, Partition, ProducerId, ProducerEpoch, CoordinatorEpoch, StartOffset, LastTimestamp, Duration."""


@pytest.fixture(scope="module")
def producers(sides: tuple[Side, Side]) -> Iterator[None]:
    """On both brokers: `done` has committed, `undone` has aborted, `open` has not ended what it wrote."""
    compare = Comparison(*sides, ())
    compare.topic("transactions-tool", 1)

    def produce(side: Side) -> list[confluent_kafka.Producer]:
        made = []
        for name in ("done", "undone", "open"):
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": side.broker.bootstrap,
                    "transactional.id": name,
                    "transaction.timeout.ms": 600_000,
                    "log_level": 0,
                }
            )
            producer.init_transactions(LONG)
            producer.begin_transaction()
            producer.produce("transactions-tool", name.encode(), partition=0)
            assert producer.flush(LONG) == 0
            if name == "done":
                producer.commit_transaction(LONG)
            elif name == "undone":
                producer.abort_transaction(LONG)
            made.append(producer)
        return made

    kept = compare.both(produce)
    compare.close()
    yield
    del kept


@feature("kafka-transactions")
def test_transactions(compare: Comparison, producers: None) -> None:
    def transactions(*options: str, exit: int = 0) -> None:
        compare.server("kafka-transactions", *options, exit=exit, ordered=False, aside=OWN)

    # An end is answered before its markers are written.
    settled = r"(?s)^((?!Prepare).)*$"
    compare.server_until(settled, "kafka-transactions", "list", ordered=False, aside=OWN)
    transactions("list", "--duration-filter", "0")
    transactions("list", "--duration-filter", "3600000")
    transactions("list", "--transactional-id-pattern", ".*done")
    transactions("list", "--transactional-id-pattern", "(", exit=1)
    transactions("describe", "--transactional-id", "done")
    transactions("describe", "--transactional-id", "undone")
    transactions("describe", "--transactional-id", "nobody", exit=1)
    transactions("describe-producers", "--topic", "transactions-tool", "--partition", "0")
    transactions("find-hanging", "--broker-id", "1")
    transactions("find-hanging", "--topic", "transactions-tool")
    transactions("find-hanging", exit=1)
    abort = ("abort", "--topic", "transactions-tool", "--partition", "0")
    transactions(*abort, "--start-offset", "0", exit=1)
    transactions(*abort, "--start-offset", "4")
    transactions("describe-producers", "--topic", "transactions-tool", "--partition", "0")
    transactions(*abort, "--start-offset", "4", exit=1)
    transactions(*abort, exit=1)
    transactions("forceTerminateTransaction", "--transactionalId", "open")
    compare.server_until(
        settled, "kafka-transactions", "describe", "--transactional-id", "open", ordered=False, aside=OWN
    )
    transactions("forceTerminateTransaction", "--transactionalId", "nobody")
    # What comes after the aborted record tells that nothing else is shown before.
    compare.produce("transactions-tool", "last")
    read = ("--topic", "transactions-tool", "--from-beginning", "--timeout-ms", "300000")
    for isolation, count in (("read_committed", "2"), ("read_uncommitted", "4")):
        compare.server("kafka-console-consumer", *read, "--isolation-level", isolation, "--max-messages", count)
    compare.server("kafka-get-offsets", "--topic", "transactions-tool")


@feature("kafka-transactions")
def test_a_transaction_that_hangs(compare: Comparison, producers: None) -> None:
    """A broker that does not verify takes what no coordinator has heard of; the record is an hour old.

    ``producers`` have had the partitions of the coordinators made: Apache Kafka's take a moment to be described.
    """
    verifies = ("--alter", "--entity-type", "brokers", "--entity-default")
    name = "transaction.partition.verification.enable"
    compare.topic("hanging", 2)
    compare.server("kafka-configs", *verifies, "--add-config", f"{name}=false")

    def write(side: Side) -> None:
        with Client(side.broker.bootstrap) as client:
            producer = init_unknown(client)  # once: each time gives another epoch
            eventually(lambda: _written(client, producer), "the broker does not verify")

    try:
        compare.both(write)
    finally:
        compare.server("kafka-configs", *verifies, "--delete-config", name)

    def find(*options: str) -> None:
        compare.server("kafka-transactions", "find-hanging", *options, ordered=False, aside=HANGING)

    find("--topic", "hanging")
    find("--topic", "hanging", "--partition", "0")
    find("--topic", "hanging", "--partition", "1", "--broker-id", "1")
    find("--broker-id", "1", "--max-transaction-timeout", "30")
    find("--broker-id", "1", "--max-transaction-timeout", "90")
    compare.server(
        "kafka-transactions", "abort", "--topic", "hanging", "--partition", "1", "--start-offset", "0", aside=OWN
    )
    find("--topic", "hanging")


def _written(client: Client, producer: InitProducerIdResponse) -> bool:
    """Whether the record is there, and its transaction open."""
    partition = TopicPartition("hanging", 1)
    try:
        write_unknown(client, partition, time.time_ns() // 1_000_000 - 3_600_000, producer)
    except AssertionError:
        return False
    return any(each.start_offset == 0 for each in describe_producers(client, partition))
