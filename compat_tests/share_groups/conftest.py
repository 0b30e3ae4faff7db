"""The broker under test with the settings of share groups, on one node and on three, and its members by each client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, broker_under_test
from compat_tests.share_groups.members import CLIENTS, ShareMembers

OPTIONS = (
    "errors.deadletterqueue.auto.create.topics.enable=true",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.min.heartbeat.interval.ms=300",
    "group.share.heartbeat.interval.ms=300",
    "group.share.min.session.timeout.ms=1000",
    "group.share.session.timeout.ms=30000",
    "share.coordinator.state.topic.num.partitions=5",
)
_NAMES = itertools.count(1)


@pytest.fixture(scope="package", params=[1, 3], ids=["1-node", "3-nodes"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(params=CLIENTS)
def members(broker: Broker, request: pytest.FixtureRequest) -> Iterator[ShareMembers]:
    process = CLIENTS[request.param](broker.bootstrap)
    yield process
    process.end()


@pytest.fixture
def name() -> str:
    """The name of a topic, and of a group, that no other test has."""
    return f"share-{next(_NAMES)}"
