"""The broker of the group tests, topics with records, and members that leave when the test ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.api_versions import served_apis
from compat_tests.brokers import Broker, broker_under_test
from compat_tests.case import await_everywhere, await_group_configs
from compat_tests.coordinators import await_group_coordinators
from compat_tests.groups import hosts
from compat_tests.groups.hosts import KINDS, Host, Kind, Member
from compat_tests.groups.wire_world import Connection
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.patience import LONG

OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=300",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=60000",
    "group.consumer.max.session.timeout.ms=900000",
    "group.consumer.max.heartbeat.interval.ms=300000",
)
"""Groups without the initial delay of three seconds. Members of both protocols learn of a change within 0.3 s."""
DEAD_AFTER_MS = 6000
"""Silence after which those are removed that a test kills. Others live longer: a slow machine may keep them silent."""

RDKAFKA_INTERVAL_MS = 5000
"""The interval between heartbeats of librdkafka's members of KIP-848, which is Kafka's default.

librdkafka 2.16.0 waits for the answer to a heartbeat no longer than this. If a node stands still for longer, the answer
that took partitions from a member is lost; as librdkafka does not ask for its assignment again, nobody gets them until
the rebalance timeout, which is five minutes.
"""

UNHURRIED_MS = 200_000
"""An interval between heartbeats that nobody is to wait for."""

CONSUMER_GROUP_HEARTBEAT = 68
GROUP_RESOURCE = 32


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each case of the suite is a row of docs/compatibility.md."""
    for item in items:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        title = item.originalname.removeprefix("test_").replace("_", " ")
        if item.path.name == "test_members.py":
            kind = KINDS[str(parameters["kind"])]
            rows = "Consumer groups of KIP-848 (group.protocol=consumer)" if kind.is_modern else "Consumer groups"
            item.add_marker(pytest.mark.feature(kind.client, rows, title))
        elif item.path.name == "test_migration.py":
            rows = f"Groups that change the protocol: {title}"
            client = KINDS[str(parameters["old"])].client
            item.add_marker(pytest.mark.feature(client, rows, f"with {parameters['new']}"))
        elif item.path.name == "test_wire.py":
            rows = "Answers to wrong group requests, equal to Apache Kafka's"
            item.add_marker(pytest.mark.feature("wire", rows, parameters["api"]))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test."""
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """host:port of that broker, not of the one that other folders share; its group coordinators are there."""
    await_group_coordinators(broker.bootstrap)
    return broker.bootstrap


@pytest.fixture(scope="session")
def has_modern_groups(bootstrap: str) -> bool:
    """Whether the broker serves KIP-848's groups."""
    return CONSUMER_GROUP_HEARTBEAT in served_apis(bootstrap)


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 50})


class Topics:
    """Makes topics and writes records to them."""

    def __init__(self, admin: AdminClient, bootstrap: str) -> None:
        self._admin, self._bootstrap = admin, bootstrap
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
        self.end: dict[tuple[str, int], int] = {}

    def make(self, prefix: str = "groups", partitions: int = 4, records: int = 5) -> str:
        """A new topic with that many records in each partition, and the default replicas of the cluster."""
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        for future in self._admin.create_topics([NewTopic(name, partitions, -1)]).values():
            future.result(LONG)
        await_everywhere(self._bootstrap, name)
        for partition in range(partitions):
            self.end[name, partition] = 0
        self.write(name, records)
        return name

    def write(self, name: str, records: int = 5) -> None:
        """That many records more in each partition."""
        for partition in [partition for topic, partition in self.end if topic == name]:
            for _ in range(records):
                self._producer.produce(name, b"value", partition=partition)
            self.end[name, partition] += records
        assert self._producer.flush(LONG) == 0

    def records(self, name: str) -> set[tuple[str, int, int]]:
        """(topic, partition, offset) of all that was written."""
        return {
            (topic, partition, offset)
            for (topic, partition), end in self.end.items()
            if topic == name
            for offset in range(end)
        }


Restart = Callable[[], None]


@pytest.fixture
def restart(broker: Broker, bootstrap: str) -> Restart:
    """Restarts the broker and waits until all group coordinators are there again.

    librdkafka's admin client (2.16.0) does not survive ListConsumerGroupOffsets answered with NOT_COORDINATOR.
    """
    if not broker.can_restart:
        pytest.skip("not ours to restart")

    def run() -> None:
        broker.restart()
        await_group_coordinators(bootstrap)

    return run


@pytest.fixture
def topics(admin: AdminClient, bootstrap: str) -> Topics:
    return Topics(admin, bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of four partitions with five records in each."""
    return topics.make()


@pytest.fixture
def rdkafka_members(request: pytest.FixtureRequest, has_modern_groups: bool) -> bool:
    """Whether the group will have members of KIP-848 by librdkafka."""
    names = {"kind", "new"} & {*request.fixturenames}
    kinds: list[Kind] = [request.getfixturevalue(name) for name in names]
    return has_modern_groups and any(kind.is_modern and kind.client == "confluent-kafka" for kind in kinds)


@pytest.fixture
def group(bootstrap: str, rdkafka_members: bool) -> str:
    name = f"group-{uuid.uuid4().hex[:10]}"
    if rdkafka_members:
        _configure(bootstrap, name, heartbeat_interval_ms=RDKAFKA_INTERVAL_MS)
    return name


@pytest.fixture
def unhurried_group(bootstrap: str, broker: Broker, group: str) -> str:
    """A group whose members are told an interval between heartbeats that they are not to wait for.

    On Apache Kafka they wait for it, so it is shorter there.
    """
    interval_ms = 15_000 if broker.name == "apache" else UNHURRIED_MS
    _configure(bootstrap, group, heartbeat_interval_ms=interval_ms, session_timeout_ms=3 * interval_ms)
    return group


@pytest.fixture
def deadly_group(bootstrap: str, has_modern_groups: bool, rdkafka_members: bool, group: str) -> str:
    """A group whose members are removed soon when they are silent, in the new protocol too."""
    if has_modern_groups:
        _configure(bootstrap, group, session_timeout_ms=3 * RDKAFKA_INTERVAL_MS if rdkafka_members else DEAD_AFTER_MS)
    return group


def _configure(bootstrap: str, group: str, **values: int) -> None:
    """Set properties of a group, whose names begin with ``consumer.``, and wait until each node knows them."""
    wanted = {f"consumer.{name.replace('_', '.')}": str(value) for name, value in values.items()}
    configs = [IncrementalAlterableConfig(name=name, value=value) for name, value in wanted.items()]
    resource = IncrementalAlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    connection = Connection(bootstrap.split(",")[0])
    changed = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    connection.close()
    assert changed.responses[0].error_code == 0, changed
    await_group_configs(bootstrap, group, wanted)


@pytest.fixture(scope="session")
def host() -> Iterator[Callable[..., Host]]:
    """The process that holds the members of a client."""
    with hosts.hosts() as get:
        yield get


class Joining:
    """Adds members to the test's group, and closes them in the end."""

    def __init__(self, bootstrap: str, group: str, host: Callable[..., Host]) -> None:
        self.bootstrap, self.group, self._host = bootstrap, group, host
        self.members: list[Member] = []
        self._own: list[Host] = []

    def __call__(self, kind: Kind, *topics: str, alone: bool = False, **options: Any) -> Member:
        """`alone` puts the member into a process of its own, which may be killed."""
        host = self._host(kind.client, fresh=alone)
        if alone:
            self._own.append(host)
            options = {"session_timeout_ms": DEAD_AFTER_MS, **options}
        name = f"{len(self.members)}-{uuid.uuid4().hex[:8]}"
        member = host.join(self.bootstrap, self.group, kind, name, topics=list(topics), **options)
        self.members.append(member)
        return member

    def close(self) -> None:
        for member in self.members:
            try:
                member.close()
            except hosts.Unanswered:
                member.host.kill()  # the next test shall not wait for it: it gets another
            except hosts.MemberError:
                pass
        for host in self._own:
            host.close()


@pytest.fixture
def join(bootstrap: str, group: str, host: Callable[..., Host]) -> Iterator[Joining]:
    joining = Joining(bootstrap, group, host)
    yield joining
    joining.close()
