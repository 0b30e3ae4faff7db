"""Tools for what kbroker does not serve: they end with a clear sentence."""

from __future__ import annotations

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison


@feature("kafka-acls: there is no authorizer")
def test_acls(compare: Comparison) -> None:
    compare.server("kafka-acls", "--list", exit=1)
    compare.server("kafka-acls", "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t", exit=1)
    compare.server("kafka-acls", "--remove", "--force", "--topic", "t", exit=1)


@feature("kafka-transactions: no transactions")
def test_transactions(compare: Comparison) -> None:
    compare.topic("transactions-topic", 1, lines=("a",))
    compare.server("kafka-transactions", "list")
    compare.server("kafka-transactions", "describe", "--transactional-id", "never", exit=1)
    producers = ("--topic", "transactions-topic", "--partition", "0")
    compare.server(
        "kafka-transactions", "describe-producers", *producers, aside=((r"(?m)^\d+ .*$", "PRODUCER"), (r"[ \t]+", " "))
    )
    compare.server("kafka-transactions", "find-hanging", "--broker-id", "1")
