"""Fixtures that pytest finds once kbroker is installed: ``kafka_broker``, ``kafka_topic``, ``kafka_faults``,
``kafka_secure_broker``, ``kafka_cluster``.

Nothing heavy is imported until a test asks for one of them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kbroker.testing import RunningBroker, RunningCluster
    from kbroker.testing.faults import Faults


@pytest.fixture(scope="session")
def kafka_broker_properties() -> dict[str, object]:
    """Kafka properties of the session's broker; override this fixture in ``conftest.py`` to set some."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_properties: dict[str, object]) -> Iterator[RunningBroker]:
    """A broker for the whole test session, on a free port of the loopback interface.

    Give each test topics of its own (``kafka_topic``) and tests do not see one another's records.
    """
    from kbroker.testing import running_broker

    with running_broker(kafka_broker_properties) as broker:
        yield broker


def _check(broker: RunningBroker) -> None:
    """Raise what has ended it in a test before: each one after it would wait for its clients' time-outs."""
    from kbroker.testing import RunningBroker

    if isinstance(broker, RunningBroker):  # a project may have a fixture of its own in its place
        broker.in_broker(lambda node: None)


@pytest.fixture
def kafka_topic(kafka_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has; it is created when it is first written to."""
    _check(kafka_broker)
    test = re.sub(r"[^a-zA-Z0-9._-]", "_", request.node.name)
    return f"{test[:180]}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kafka_faults(kafka_broker: RunningBroker) -> Iterator[Faults]:
    """Faults at the session's broker. They are undone when the test ends, however it ends."""
    _check(kafka_broker)
    with kafka_broker.faults as faults:
        yield faults


@pytest.fixture(scope="session")
def kafka_secure_broker() -> Iterator[RunningBroker]:
    """A broker for the whole test session with TLS, passwords and an authorizer (``SASL_SSL``).

    Its users are ``admin`` (``admin-secret``), who may do everything, and ``alice`` (``alice-secret``), who may do
    what ACLs allow.
    """
    from kbroker.testing import running_broker

    with running_broker(security="sasl_ssl", super_users=["admin"]) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster_properties() -> dict[str, object]:
    """Kafka properties of every node of the session's cluster; override this fixture to set some."""
    return {}


@pytest.fixture(scope="session")
def _kafka_cluster(kafka_cluster_properties: dict[str, object]) -> Iterator[RunningCluster]:
    from kbroker.testing import running_cluster

    with running_cluster(3, kafka_cluster_properties) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(_kafka_cluster: RunningCluster) -> Iterator[RunningCluster]:
    """Three nodes, each a process that a test may kill, pause or stop.

    They are the same for the whole session: before each test that asks for them, those that do not run are started
    again, and all replicas are in sync. Their faults are undone when the test ends. A clock that stands goes on.
    """
    if _kafka_cluster.clock.stands:
        _kafka_cluster.start_clock()
    _kafka_cluster.heal()
    with _kafka_cluster.faults:
        yield _kafka_cluster
