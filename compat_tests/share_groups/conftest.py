"""The broker under test with the settings of share groups, on one node and on three, and its members by each client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, broker_under_test
from compat_tests.share_groups.members import CLIENTS, ShareMembers

LOCK_MS = 600_000
LONG_LOCKS = (f"group.share.max.record.lock.duration.ms={LOCK_MS}", f"group.share.record.lock.duration.ms={LOCK_MS}")
"""No lock ends that a test does not mean to end, however long its members or its nodes stand still."""
BRIEF_LOCK_MS = "30000"
"""For the groups of members and nodes that are killed: a record may go to one that does not hear of it any more."""

OPTIONS = (
    "errors.deadletterqueue.auto.create.topics.enable=true",
    "group.share.min.record.lock.duration.ms=1000",
    *LONG_LOCKS,
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
