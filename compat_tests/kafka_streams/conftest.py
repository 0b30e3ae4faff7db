"""Three nodes for each module, and an application on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.brokers import Broker, broker_under_test
from compat_tests.case import await_everywhere, await_gone
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.kafka_streams.app import StreamsApp
from tests.patience import LONG

OPTIONS = (
    "group.streams.min.session.timeout.ms=1000",
    "group.streams.session.timeout.ms=45000",
    "group.streams.min.heartbeat.interval.ms=300",
    "group.streams.heartbeat.interval.ms=1000",
    "group.streams.initial.rebalance.delay.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)


@pytest.fixture(scope="module", params=[3], ids=["3-nodes"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[ToolDriver]:
    """The tools of the newest release."""
    driver = ToolDriver(broker.bootstrap, SERVER_VERSION)
    yield driver
    driver.close()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """The nodes, with the topics of the application and no others."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    old = [name for name in admin.list_topics(timeout=LONG).topics if not name.startswith("__")]
    for future in admin.delete_topics(old).values() if old else ():
        future.result()
    for name in old:
        await_gone(broker.bootstrap, name)  # or a node that still has it would take what is written next
    for future in admin.create_topics([NewTopic("lines", 3), NewTopic("counts", 1)]).values():
        future.result()
    for name in ("lines", "counts"):
        await_everywhere(broker.bootstrap, name)  # an application without its topics ends
    return broker.bootstrap


@pytest.fixture
def apps(bootstrap: str, tmp_path: Path) -> Iterator[dict[str, StreamsApp]]:
    running: dict[str, StreamsApp] = {}
    yield running
    for app in running.values():
        app.kill()
