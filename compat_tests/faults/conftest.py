"""Three nodes of the broker under test, and the doors that `kbroker faults --upstream` has before them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, broker_under_test
from kbroker.testing.upstream import UpstreamCluster


@pytest.fixture(scope="package")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The cluster that is stood before."""
    yield from broker_under_test(request, default_nodes=3)


@pytest.fixture(scope="package")
def bootstrap(broker: Broker) -> str:
    """Where clients connect past the doors."""
    return broker.bootstrap


@pytest.fixture(scope="package")
def doors(bootstrap: str) -> Iterator[UpstreamCluster]:
    """The doors, for all tests of this folder."""
    with UpstreamCluster(bootstrap) as upstream:
        yield upstream


@pytest.fixture
def upstream(doors: UpstreamCluster) -> Iterator[UpstreamCluster]:
    """The doors, without any fault."""
    yield doors
    doors.reset(topics=False)
