"""The two brokers with security: the same properties, certificates and SCRAM user, each on its own ports.

The listener PLAINTEXT is for what a measurement has to arrange. SSL is TLS alone; SASL_SSL asks for a client's
certificate, too, and for SCRAM-SHA-256. The cipher suites are the defaults: all clients here offer
TLS_AES_256_GCM_SHA384 first, and either broker takes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import ClassVar

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from benchmarks.servers import COMMON, Apache, Kbroker, Server, ServerError, is_readable
from compat_tests.apache_kafka import SERVER_JVM_OPTIONS, ApacheKafka, java_command, random_uuid
from compat_tests.client_security import Security
from compat_tests.security.certificates import Authority
from kbroker.tools.cli.cluster_plan import free_ports

USER = "benchmark"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Secure(Server):
    """A server with the listeners PLAINTEXT, SSL and SASL_SSL. ``port`` is the first one's."""

    def __init__(self) -> None:
        super().__init__()
        self.port, self.ssl_port, self.sasl_port, self.controller_port = free_ports(8, in_row=True)[::2]
        # A second node of kbroker has the ports between them.
        self.password = uuid.uuid4().hex
        authority = Authority(self.directory / "ca", "authority")
        self._node = authority.identity("node", "nodes")
        self.ca, self.identity = authority.pem, authority.identity(USER, "clients").pem

    @property
    def properties(self) -> dict[str, str]:
        """The server.properties but for those of Apache Kafka's examples."""
        clients = ",".join(
            f"{name}://{self.host}:{port}"
            for name, port in (("PLAINTEXT", self.port), ("SSL", self.ssl_port), ("SASL_SSL", self.sasl_port))
        )
        return {
            **COMMON,
            "listeners": f"{clients},CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._node.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.enabled.protocols": "TLSv1.3",
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        }

    def create_user(self) -> None:
        """Make the SCRAM user, once the broker serves.

        Not by --add-scram of the format command: with --standalone, Apache Kafka 4.4.0 has no such user afterwards.
        """
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, credential, self.password.encode())
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.alter_user_scram_credentials([change])[USER].result(30)

    def await_nodes(self, count: int) -> None:
        """Wait until so many nodes are there. ServerError if they are not after 30 s."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        until = time.monotonic() + 30
        while len(admin.list_topics(timeout=30).brokers) < count:
            if time.monotonic() > until:
                raise ServerError(f"there are no {count} nodes:\n{self.log_tail()}")
            time.sleep(0.05)

    def ports_of_leaders(self, topic: str) -> list[int]:
        """Returns the port of SASL_SSL of the node that leads each partition of a topic."""
        known = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3}).list_topics(topic, timeout=10)
        partitions = known.topics[topic].partitions
        return [
            self.sasl_port + known.brokers[partitions[index].leader].port - self.port for index in sorted(partitions)
        ]

    @property
    def tls(self) -> Security:
        """TLS alone, for a stock client."""
        return Security("SSL", ca=self.ca)

    @property
    def tls_bootstrap(self) -> str:
        return f"{self.host}:{self.ssl_port}"


class SecureKbroker(Secure, Kbroker):
    """`kbroker format` and `kbroker start` with a server.properties."""

    name: ClassVar[str] = "kbroker"

    def start(self) -> None:
        file = self.directory / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"{self.host}:{self.controller_port}",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self.properties,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"PYTHONPATH": path}
        kbroker = [sys.executable, "-m", "kbroker"]
        command = [*kbroker, "format", "--standalone", "-c", str(file), "-t", random_uuid()]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.directory)
        if done.returncode:
            raise ServerError(f"kbroker format: {done.stderr}{done.stdout}")
        self.launched_at = time.monotonic()
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*kbroker, "start", "-c", str(file), *self.options],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )

    def await_port(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        output, seen = self._process.stdout.fileno(), b""
        while b"kbroker ready:" not in seen:
            left = self.launched_at + 30 - time.monotonic()
            chunk = os.read(output, 4096) if is_readable(output, max(0.0, left)) else b""
            if not chunk:
                raise ServerError(f"kbroker did not start:\n{self.log_tail()}")
            seen += chunk


class SecureApache(Secure, Apache):
    """Apache Kafka with the same properties."""

    name: ClassVar[str] = "apache"

    def start(self) -> None:
        node = ApacheKafka(
            directory=self.directory,
            port=self.port,
            controller_port=self.controller_port,
            properties=self.properties,
            jvm_options=SERVER_JVM_OPTIONS,
        )
        node.format()
        command = java_command(
            "kafka.Kafka",
            str(self.directory / "server.properties"),
            jvm_options=(*node.heap, *SERVER_JVM_OPTIONS),
            log_config="log4j2.properties",
            logs_dir=self.directory / "logs",
        )
        self.launched_at = time.monotonic()
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def await_port(self) -> None:
        pass  # chosen before the start


SECURE: dict[str, type[Secure]] = {"kbroker": SecureKbroker, "apache": SecureApache}


def earlier_secure(checkout: Path) -> type[Secure]:
    """kbroker of another checkout, under the name ``before``."""
    return type("SecureBefore", (SecureKbroker,), {"name": "before", "root": checkout})
