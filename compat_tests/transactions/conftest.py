"""The broker of the transaction tests: it looks for what is out of time five times a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker, broker_under_test

OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    "transaction.state.log.num.partitions=4",
    "offsets.topic.num.partitions=4",
    "log.retention.check.interval.ms=200",
    "log.initial.task.delay.ms=200",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each case of the suite is a row of docs/compatibility.md."""
    for item in items:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if item.path.name == "test_wire.py":
            rows = "Answers to transactional requests, equal to Apache Kafka's"
            item.add_marker(pytest.mark.feature("wire", rows, parameters["api"]))
        elif "client" in parameters:
            title = item.originalname.removeprefix("test_").replace("_", " ")
            item.add_marker(pytest.mark.feature(parameters["client"], "Transactions", title))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test."""
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """host:port of that broker, not of the one that other folders share."""
    return broker.bootstrap
