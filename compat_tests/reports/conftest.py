"""One broker for all reports: it cleans, retains and expires many times a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, broker_under_test
from compat_tests.reports.asked import Asked

OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.max.size=3",
    "group.consumer.assignment.interval.ms=0",
    "group.consumer.session.timeout.ms=60000",
    "group.share.assignment.interval.ms=0",
    "offsets.topic.num.partitions=1",
    "offsets.topic.compression.codec=1",
    "offsets.retention.check.interval.ms=200",
    "share.coordinator.state.topic.compression.codec=4",
    "share.coordinator.state.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    "log.cleaner.backoff.ms=200",
    "log.initial.task.delay.ms=100",
    "log.retention.check.interval.ms=300",
)


@pytest.fixture(scope="package")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test."""
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(scope="package")
def bootstrap(broker: Broker) -> str:
    """host:port of that broker, not of the one that other folders share."""
    return broker.bootstrap


@pytest.fixture(scope="package")
def asked(bootstrap: str) -> Iterator[Asked]:
    """The broker, to be asked by raw requests."""
    made = Asked(bootstrap)
    yield made
    made.close()
