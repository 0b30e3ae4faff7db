"""An open cluster is moved to SASL_SSL by rolling restarts, brokers and controllers, under the load of a producer."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.client_security import Security
from compat_tests.cluster.history import History, check, doubled, sent_again, value_of
from compat_tests.cluster.load import copies_of, idempotent_producer, read_all
from compat_tests.security.conftest import FULL, kind_of
from compat_tests.security.servers import PLAIN_LOGIN, SCRAM_LOGIN, SecureServers
from compat_tests.security.world import all_in_sync
from kbroker.tools.cli.cluster_plan import cluster_properties, free_ports
from tests.patience import LONG, eventually

PARTITIONS = 3
OPEN, BOTH, SWITCHED, SHUT = range(4)
"""PLAINTEXT alone; both, and nodes use PLAINTEXT; both, and nodes use SASL_SSL; SASL_SSL alone, with rights."""

_LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SASL_SSL", "OPEN_CONTROLLER": "PLAINTEXT"}
_LISTENERS["SAFE_CONTROLLER"] = "SASL_SSL"


class MovingServers(SecureServers):
    """Three nodes, each at a stage of its way."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, kind, kind, mechanism_between="SCRAM-SHA-512")
        self.format_options: list[str] = []  # nobody has a password when the cluster begins
        self.stages = [OPEN] * self.count
        ports = iter(free_ports(self.count * len(_LISTENERS)))
        self._ports = [{name: next(ports) for name in _LISTENERS} for _ in range(self.count)]

    def _controllers(self, listener: str) -> str:
        return ",".join(f"{number}@127.0.0.1:{ports[listener]}" for number, ports in enumerate(self._ports, 1))

    def properties(self, index: int) -> dict[str, str]:
        """The server.properties of a node at its stage."""
        stage, ports = self.stages[index], self._ports[index]
        brokers = {OPEN: ["PLAINTEXT"], SHUT: ["SASL_SSL"]}.get(stage, ["PLAINTEXT", "SASL_SSL"])
        controllers = {
            OPEN: ["OPEN_CONTROLLER"],
            BOTH: ["OPEN_CONTROLLER", "SAFE_CONTROLLER"],
            SWITCHED: ["SAFE_CONTROLLER", "OPEN_CONTROLLER"],
            SHUT: ["SAFE_CONTROLLER"],
        }[stage]
        login = f'username="node" password="{self.users["node"]}"'
        found = {
            "process.roles": "broker,controller",
            "node.id": str(index + 1),
            "log.dirs": str(self.directory / str(index + 1) / "data"),
            "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in [*brokers, *controllers]),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in brokers),
            "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in _LISTENERS.items()),
            "controller.listener.names": ",".join(controllers),
            "controller.quorum.bootstrap.servers": "",
            "controller.quorum.voters": self._controllers(controllers[0]),
            "inter.broker.listener.name": "SASL_SSL" if stage >= SWITCHED else "PLAINTEXT",
            **cluster_properties(self.count),
        }
        if stage == OPEN:
            return found
        found |= {
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN} {login};",
            "listener.name.safe_controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe_controller.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {login} "
            f'user_node="{self.users["node"]}";',
            **self.pem_stores(),
        }
        if stage == SHUT:
            found["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            found["super.users"] = "User:node;User:admin"
        return found


class _Load:
    """A producer that sends to all partitions all the time, and notes what it is told."""

    def __init__(self, name: str, topic: str, bootstrap: str, security: Security | None, history: History) -> None:
        self._name, self._topic, self._history = name, topic, history
        self._end = threading.Event()
        self.said: deque[str] = deque(maxlen=400)
        self.own_epochs: set[tuple[int, int]] = set()
        settings = security.librdkafka() if security else {}
        configs = {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 300_000, **settings}
        self._producer = idempotent_producer(configs, self.said, self.own_epochs)
        self._thread = threading.Thread(target=self._send)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, partition = message.value(), message.partition()
        assert value is not None and partition is not None
        if error is not None:
            self._history.problems.append(f"{value.decode()}: {error}")
        else:
            self._history.acknowledge(partition, message.offset(), value.decode())

    def _send(self) -> None:
        numbers = itertools.cycle(range(PARTITIONS))
        while not self._end.wait(0.005):
            partition = next(numbers)
            key = self._name, partition
            value = value_of(*key, self._history.sent[key])
            self._history.sent[key] += 1
            self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        if self._producer.flush(LONG):
            self._history.problems.append("not all records were answered in 300 s")

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()


@pytest.fixture
def moving(request: pytest.FixtureRequest) -> Iterator[MovingServers]:
    """Three nodes that are open to all."""
    kind = kind_of(request.config)
    if kind == "apache" and not FULL:
        pytest.skip("nine restarts of Apache Kafka are minutes: KBROKER_COMPAT_SECURITY_FULL=1")
    servers = MovingServers(kind)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


def _roll(servers: MovingServers, stage: int, admin: AdminClient, topic: str) -> None:
    for index, kind in enumerate(servers.kinds):
        servers.stages[index] = stage
        servers.exchange(index, kind)
        eventually(lambda: all_in_sync(admin, topic))


def test_open_cluster_becomes_a_secure_one(moving: MovingServers) -> None:
    plaintext = moving.bootstrap("PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": plaintext, "log_level": 0})
    topic = "moved"
    (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, -1)]).values()
    created.result(LONG)
    eventually(lambda: all_in_sync(admin, topic))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for user in ("node", "admin"):
        change = UserScramCredentialUpsertion(user, credential, moving.users[user].encode())
        (altered,) = admin.alter_user_scram_credentials([change]).values()
        altered.result(LONG)

    history = History()
    first = _Load("open", topic, plaintext, None, history)
    with first.running():
        _roll(moving, BOTH, admin, topic)
        _roll(moving, SWITCHED, admin, topic)

    safe = moving.bootstrap("SASL_SSL")
    security = moving.sasl("SASL_SSL", "SCRAM-SHA-512", "admin", moving.users["admin"])
    secure = AdminClient({"bootstrap.servers": safe, "log_level": 0, **security.librdkafka()})
    second = _Load("safe", topic, safe, security, history)
    with second.running():
        _roll(moving, SHUT, secure, topic)

    assert history.count == sum(history.sent.values()) > 100, history.problems
    final = read_all(safe, topic, PARTITIONS, ends=history.ends, settings=security.librdkafka())
    twice = doubled(final)
    copies = copies_of(moving.directory / "1" / "data", topic, twice) if twice else {}
    problems = check(history, final, useless=sent_again(history, copies, first.own_epochs | second.own_epochs))
    assert not problems, "\n".join([*problems, *first.said, *second.said])
