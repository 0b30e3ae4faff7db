"""The profile `secure` of docker-compose.yml for real: stock clients of this machine, and a killed node.

With ``--containers``, and docker or podman with its compose. The image is built first.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from compat_tests.client_security import Security
from compat_tests.cluster.test_containers import ROOT, engine_here
from kbroker.client import Client, ClientError
from kbroker.client.properties import ClientProperties
from kbroker.client.security import ClientSecurity
from kbroker.config.properties_file import parse_properties
from kbroker.security.protocol import SecurityProtocol
from kbroker.security.sasl.jaas import parse_jaas
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.diagnosis.asking import ask_cluster
from kbroker.tools.diagnosis.cluster import health_problems
from tests.patience import LONG

NODES = ("secure-1", "secure-2", "secure-3")


class SecureCompose:
    """The services of the profile under a project name of their own, seen from the host."""

    def __init__(self, directory: Path) -> None:
        self._engine, compose = engine_here()
        self.project = f"kbrokersecure{uuid.uuid4().hex[:6]}"
        self._compose = [*compose, "-f", str(ROOT / "docker-compose.yml"), "-p", self.project, "--profile", "secure"]
        self._directory = directory
        self.ports = free_ports(3)
        self._environment = os.environ | {f"SECURE_PORT_{n}": str(port) for n, port in enumerate(self.ports, 1)}

    def compose(self, *words: str) -> None:
        """A command of compose. Fails with what it said."""
        done = subprocess.run(
            [*self._compose, *words], cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=2 * LONG
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def engine(self, *words: str) -> str:
        """A command of docker or podman; what it printed, on both streams."""
        done = subprocess.run(
            [self._engine, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONG
        )
        assert done.returncode == 0, done.stdout[-2000:]
        return done.stdout

    def container(self, service: str) -> str:
        """The container of a service, running or not."""
        labels = {"project": self.project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{name}={value}" for name, value in labels.items()]
        [name] = self.engine("ps", "-a", *filters, "--format", "{{.Names}}").split()
        return name

    def up(self) -> None:
        """All services, until the one that shows that it works has ended."""
        self.compose("up", "-d", "secure-client")
        deadline = time.monotonic() + LONG
        while "\nsecure: localhost:" not in self.engine("logs", self.container("secure-client")):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.5)  # a poll of containers

    def logs(self) -> str:
        """The output of all containers."""
        return "".join(self.engine("logs", self.container(name)) for name in ("secure-setup", *NODES, "secure-client"))

    def file(self, name: str) -> str:
        """A file for clients, as the compose file says to get it."""
        return self.engine("exec", self.container("secure-1"), "cat", f"/clients/{name}")

    def properties(self, user: str) -> dict[str, str]:
        """The client properties of a user."""
        return parse_properties(self.file(f"{user}.properties"))

    def security(self, user: str) -> Security:
        """The same in the words of other libraries."""
        properties = self.properties(user)
        login = parse_jaas(properties["sasl.jaas.config"]).options
        ca = self._directory / "ca.pem"
        ca.write_text(self.file("ca.pem"))
        mechanism = properties["sasl.mechanism"]
        return Security(properties["security.protocol"], mechanism, login["username"], login["password"], ca=ca)

    def problems(self) -> list[str]:
        """The cluster's problems in the words of each node, asked as the admin."""
        properties = ClientProperties(self.properties("admin"), "admin.properties")
        security = ClientSecurity(SecurityProtocol.SASL_SSL, properties)
        found: list[str] = []
        for node, port in enumerate(self.ports, 1):
            try:
                with Client(f"localhost:{port}", timeout=5, security=security) as client:
                    found += health_problems(ask_cluster(client), broker=node, complete=True)
            except ClientError as error:
                found.append(f"{NODES[node - 1]}: {error}")
        return found

    def await_complete(self) -> None:
        """Until all nodes are there with all their replicas in sync."""
        deadline = time.monotonic() + LONG
        while found := self.problems():
            assert time.monotonic() < deadline, "\n".join([*found, self.logs()[-4000:]])
            time.sleep(0.5)  # a poll of containers


@pytest.fixture(scope="module")
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCompose]:
    """The profile's services, from a clean state."""
    if not request.config.getoption("--containers"):
        pytest.skip("only with --containers")
    made = SecureCompose(tmp_path_factory.mktemp("secure"))
    try:
        made.compose("build")
        made.up()
        yield made
    finally:
        made.compose("down", "-v", "-t", "5")


def librdkafka(secure: SecureCompose, user: str) -> dict[str, Any]:
    """confluent-kafka's configuration for a user."""
    servers = ",".join(f"localhost:{port}" for port in secure.ports)
    return {"bootstrap.servers": servers, "log_level": 0, **secure.security(user).librdkafka()}


def write(secure: SecureCompose, values: list[str]) -> None:
    """Produce with acks=all from the host; fails unless each is acknowledged."""
    errors: list[object] = []
    producer = Producer({**librdkafka(secure, "client"), "enable.idempotence": True})
    for value in values:
        producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(LONG) == 0 and not errors


def read(secure: SecureCompose, count: int) -> list[str]:
    """Consume so many from the beginning."""
    group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**librdkafka(secure, "client"), **group})
    consumer.subscribe(["orders"])
    values: list[str] = []
    deadline = time.monotonic() + LONG
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


def test_its_own_client_has_written_and_read(secure: SecureCompose) -> None:
    told = secure.engine("logs", secure.container("secure-client"))
    assert "hello from " in told and f"localhost:{secure.ports[0]}" in told


def test_stock_clients_of_the_host_and_a_killed_node(secure: SecureCompose) -> None:
    secure.await_complete()
    write(secure, [f"a{n}" for n in range(100)])
    secure.engine("kill", secure.container("secure-2"))
    write(secure, [f"b{n}" for n in range(100)])
    secure.engine("start", secure.container("secure-2"))
    secure.await_complete()
    assert read(secure, 200) == sorted(f"{each}{n}" for each in "ab" for n in range(100))


def test_who_has_no_password_is_refused(secure: SecureCompose) -> None:
    wrongs: tuple[dict[str, Any], ...]
    wrongs = ({"sasl.password": "guessed"}, {"security.protocol": "plaintext"}, {"security.protocol": "ssl"})
    for wrong in wrongs:
        admin = AdminClient({**librdkafka(secure, "client"), **wrong})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)


def test_secrets_are_where_they_belong(secure: SecureCompose) -> None:
    told = secure.logs()
    for user in ("admin", "client"):
        assert secure.security(user).password not in told
    assert "PRIVATE KEY" not in told
    for node in NODES:
        files = secure.engine("exec", secure.container(node), "find", "/etc/kafka", "/clients", "-name", "*.key")
        assert not files.strip(), "the authority's key is on no node"
        shown = secure.engine("exec", secure.container(node), "sh", "-c", "ls -l /etc/kafka/secrets/node.pem")
        assert shown.startswith("-rw------- ") and "appuser" in shown


def test_the_second_start_keeps_all(secure: SecureCompose) -> None:
    before = secure.properties("client")
    secure.compose("down", "-t", "10")
    secure.up()
    assert secure.properties("client") == before
    secure.await_complete()
    assert len(read(secure, 200)) == 200
    told = secure.engine("logs", secure.container("secure-client"))
    assert "can log in" not in told and "hello from " in told
