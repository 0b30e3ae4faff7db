"""The broker of the group tests: no initial rebalance delay, which would cost three seconds for each group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.brokers import ApacheBroker, ExternalBroker, KbrokerBroker


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[ApacheBroker | ExternalBroker | KbrokerBroker]:
    """The broker under test."""
    bootstrap = request.config.getoption("--bootstrap")
    if bootstrap:
        yield ExternalBroker(bootstrap)
        return
    if request.config.getoption("--broker") == "apache":
        node: ApacheBroker | KbrokerBroker = ApacheBroker()
    else:
        node = KbrokerBroker("group.initial.rebalance.delay.ms=0")
    try:
        yield node
    finally:
        node.stop()
