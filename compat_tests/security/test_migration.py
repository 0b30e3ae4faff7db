"""An open cluster is moved to SASL_SSL by rolling restarts, brokers and controllers, under the load of a producer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.client_security import Security
from compat_tests.confluent_kafka.client import ConfluentKafkaClient
from compat_tests.security.conftest import FULL, kind_of
from compat_tests.security.servers import PLAIN_LOGIN, SCRAM_LOGIN, SecureServers
from compat_tests.security.world import all_in_sync, eventually
from kbroker.cli.cluster_plan import cluster_properties, free_ports

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
    """A producer that sends all the time; `acknowledged` are the values that the cluster has taken."""

    def __init__(self, topic: str, bootstrap: str, security: Security | None, first: int) -> None:
        self.acknowledged: set[bytes] = set()
        self.errors: list[str] = []
        self.next = first
        self._topic = topic
        self._end = threading.Event()
        settings = security.librdkafka() if security else {}
        configs = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**configs, "message.timeout.ms": 300_000, **settings})
        self._thread = threading.Thread(target=self._send)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            value = message.value()
            assert value is not None
            self.acknowledged.add(value)

    def _send(self) -> None:
        while not self._end.wait(0.005):
            self._producer.produce(self._topic, str(self.next).encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            self.next += 1
        if self._producer.flush(300):
            self.errors.append("not all records were answered in 300 s")

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
        eventually(lambda: all_in_sync(admin, topic), 180)


def test_open_cluster_becomes_a_secure_one(moving: MovingServers) -> None:
    plaintext = moving.bootstrap("PLAINTEXT")
    admin = AdminClient({"bootstrap.servers": plaintext, "log_level": 0})
    topic = "moved"
    (created,) = admin.create_topics([NewTopic(topic, 3, -1)]).values()
    created.result(120)
    eventually(lambda: all_in_sync(admin, topic))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for user in ("node", "admin"):
        change = UserScramCredentialUpsertion(user, credential, moving.users[user].encode())
        (altered,) = admin.alter_user_scram_credentials([change]).values()
        altered.result(120)

    first = _Load(topic, plaintext, None, 0)
    with first.running():
        _roll(moving, BOTH, admin, topic)
        _roll(moving, SWITCHED, admin, topic)
    assert not first.errors

    safe = moving.bootstrap("SASL_SSL")
    security = moving.sasl("SASL_SSL", "SCRAM-SHA-512", "admin", moving.users["admin"])
    secure = AdminClient({"bootstrap.servers": safe, "log_level": 0, **security.librdkafka()})
    second = _Load(topic, safe, security, first.next)
    with second.running():
        _roll(moving, SHUT, secure, topic)
    assert not second.errors

    acknowledged = first.acknowledged | second.acknowledged
    assert len(acknowledged) > 100
    client = ConfluentKafkaClient(safe, security)
    read = [record.value for record in client.read_to_end(topic)]
    assert len(read) == len(set(read)), "a record is there twice"
    assert acknowledged == set(read)
