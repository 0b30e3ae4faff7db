"""Secure nodes of either broker from the same server.properties: listeners of every kind in one process.

| listener | |
|---|---|
| SSL | TLS; the client stays ANONYMOUS. PKCS12 |
| MTLS | TLS, and the client's certificate is its name. PEM |
| ELSEWHERE | TLS with a certificate for another host |
| SASL_PLAINTEXT | PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 |
| NARROW | SASL_PLAINTEXT with SCRAM-SHA-512 alone, and sessions that end |
| TOKENS | SASL_PLAINTEXT with OAUTHBEARER alone: tokens of the provider in `tokens.py` |
| SASL_SSL | as SASL_PLAINTEXT, over TLS; the nodes use it, too. JKS where there is a keytool |
| CONTROLLER | TLS with certificates on both sides |
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.apache_kafka import ApacheKafka, random_uuid
from compat_tests.client_security import OAUTHBEARER, Security
from compat_tests.security.certificates import STORE_PASSWORD, Authority
from compat_tests.security.tokens import jvm_option, provider
from kbroker.tools.cli.cluster_plan import cluster_properties, free_ports
from tests.patience import LONG

PROTOCOLS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "NARROW": "SASL_PLAINTEXT",
    "TOKENS": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
"""Listener -> security protocol."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"

KERBEROS_LOGIN = "com.sun.security.auth.module.Krb5LoginModule required"


SESSION_SECONDS = 2
"""The length of a session of the listener NARROW, unless it is renewed.

Brokers refuse to renew it within a second of the last time.
"""


class NodeError(Exception):
    """A node did not start; the message holds what it printed."""


@dataclass
class Users:
    """The users of the PLAIN mechanism; `node` is what nodes call themselves to one another (SCRAM, too)."""

    passwords: dict[str, str] = field(
        default_factory=lambda: {name: f"{name}-{uuid.uuid4().hex}" for name in ("node", "admin", "alice", "bob")}
    )

    def __getitem__(self, name: str) -> str:
        return self.passwords[name]


class SecureServers:
    """One node or several, each of "kbroker" or "apache", with the listeners above."""

    def __init__(self, *kinds: str, mechanism_between: str = "PLAIN", keytab: Path | None = None) -> None:
        """``keytab`` holds the key of ``kafka/localhost``, if the listeners are to have GSSAPI, too."""
        self._keytab = keytab
        self.kinds = list(kinds)
        self.count = count = len(kinds)
        self.users = Users()
        self.provider = provider()
        self.token_key = f"token-key-{uuid.uuid4().hex}"
        self.directory = Path(tempfile.mkdtemp(prefix=f"compat-secure-{kinds[0]}-"))
        self.authority = Authority(self.directory / "ca", "authority")
        self.other_authority = Authority(self.directory / "other-ca", "other-authority")
        self._mechanism_between = mechanism_between
        names = [*PROTOCOLS, "CONTROLLER"]
        ports = free_ports(count * len(names))
        self._ports = [dict(zip(names, ports[index * len(names) :], strict=False)) for index in range(count)]
        self._cluster_id = random_uuid()
        self._nodes: list[ApacheKafka | _KbrokerNode] = []
        self.format_options: list[str] = []
        if mechanism_between != "PLAIN":
            for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                self.format_options += ["--add-scram", f"{name}=[name=node,password={self.users['node']}]"]
        self._make_stores()

    def bootstrap(self, listener: str) -> str:
        """The addresses of all nodes at `listener`."""
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports)

    def _make_stores(self) -> None:
        node = self.authority.identity("node", "nodes")
        self._node = node
        self._elsewhere = self.authority.identity("elsewhere", "nodes", ("elsewhere.example",))
        self._jks = node.jks()
        self.alice = self.authority.identity("alice", "clients").pem
        self.stranger = self.other_authority.identity("stranger", "clients").pem

    def properties(self, index: int) -> dict[str, str]:
        """The server.properties of node `index`, for either broker as they stand."""
        ports = self._ports[index]
        clients = ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in PROTOCOLS)
        controllers = [each["CONTROLLER"] for each in self._ports]
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        login = f'username="node" password="{self.users["node"]}"'
        plain_users = " ".join(f'user_{name}="{password}"' for name, password in self.users.passwords.items())
        found = {
            "process.roles": "broker,controller",
            "node.id": str(index + 1),
            "log.dirs": str(self.directory / str(index + 1) / "data"),
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{ports['CONTROLLER']}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "",
            "controller.quorum.voters": ",".join(
                f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1)
            ),
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": self._mechanism_between,
            "share.coordinator.state.topic.replication.factor": str(min(self.count, 3)),
            "share.coordinator.state.topic.min.isr": "1",
            **cluster_properties(self.count),
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # TLS
            **self.pem_stores(),
            "ssl.client.auth": "none",
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+),OU=clients$/$1/L,RULE:^CN=([^,]+),OU=nodes$/$1/,DEFAULT",
            "listener.name.controller.ssl.client.auth": "required",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.elsewhere.ssl.keystore.location": str(self._elsewhere.pem),
            **self._stores("ssl", "PKCS12", self._node.p12),
            **self._stores("sasl_ssl", *(("JKS", self._jks) if self._jks else ("PKCS12", self._node.p12))),
            # SASL
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.narrow.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.narrow.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN};",
            "listener.name.narrow.scram-sha-512.connections.max.reauth.ms": str(SESSION_SECONDS * 1000),
            **self._tokens(),
            "connection.failed.authentication.delay.ms": "0",
            # Authorization
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:admin",
            "delegation.token.secret.key": self.token_key,
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            found[f"{prefix}.plain.sasl.jaas.config"] = f"{PLAIN_LOGIN} {login} {plain_users};"
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                found[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_LOGIN} {login};"
        return found | self._kerberos()

    def _kerberos(self) -> dict[str, str]:
        """The listeners' properties for GSSAPI. Nodes are User:kafka to one another."""
        if self._keytab is None:
            return {}
        options = f'useKeyTab=true storeKey=true keyTab="{self._keytab}" principal="kafka/localhost"'
        lines = {
            f"listener.name.{listener}.gssapi.sasl.jaas.config": f"{KERBEROS_LOGIN} {options};"
            for listener in ("sasl_plaintext", "sasl_ssl")
        }
        return {
            **lines,
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "GSSAPI")),
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](ALICE)/L,DEFAULT",
            "super.users": "User:node;User:admin;User:kafka",
        }

    def _tokens(self) -> dict[str, str]:
        prefix = "listener.name.tokens.oauthbearer"
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "listener.name.tokens.sasl.enabled.mechanisms": OAUTHBEARER,
            f"{prefix}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{prefix}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.provider.jwks_url,
            f"{prefix}.sasl.oauthbearer.expected.audience": self.provider.audience,
            f"{prefix}.sasl.oauthbearer.expected.issuer": self.provider.issuer,
        }

    def pem_stores(self) -> dict[str, str]:
        """A node's key, its certificate, and the authority that it trusts, for all listeners."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._node.pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.pem),
        }

    def _stores(self, listener: str, kind: str, keystore: Path) -> dict[str, str]:
        """A listener's own stores, with passwords, in place of the general PEM ones."""
        prefix = f"listener.name.{listener}.ssl"
        return {
            f"{prefix}.keystore.type": kind,
            f"{prefix}.keystore.location": str(keystore),
            f"{prefix}.keystore.password": STORE_PASSWORD,
            f"{prefix}.key.password": STORE_PASSWORD,
            f"{prefix}.truststore.type": "PKCS12",
            f"{prefix}.truststore.location": str(self.authority.truststore()),
            f"{prefix}.truststore.password": STORE_PASSWORD,
        }

    def start(self) -> None:
        """Format and start all nodes, and wait until each serves; whoever calls also stops what has started."""
        self._nodes = [self._node_of(index) for index in range(self.count)]
        for node in self._nodes:
            node.launch()
        for node in self._nodes:
            node.await_started()

    def _node_of(self, index: int) -> ApacheKafka | _KbrokerNode:
        properties, directory = self.properties(index), self.directory / str(index + 1)
        if self.kinds[index] == "kbroker":
            return _KbrokerNode(directory, properties, self._cluster_id, self.format_options)
        return ApacheKafka(
            directory=directory,
            port=self._ports[index]["SASL_SSL"],
            controller_port=1,  # its place is in the properties
            node_id=index + 1,
            cluster_id=self._cluster_id,
            format_options=self.format_options,
            heap=("-Xmx512M", jvm_option()),
            properties=properties,
        )

    def exchange(self, index: int, kind: str) -> None:
        """Stop one node in good order, and start the other broker on its files and its server.properties."""
        self._nodes[index].stop()
        self.kinds[index] = kind
        self._nodes[index] = self._node_of(index)
        self.revive(index)

    def kill(self, index: int) -> None:
        """SIGKILL of one node."""
        self._nodes[index].kill()

    def revive(self, index: int) -> None:
        """Start one node again that was killed."""
        self._nodes[index].launch()
        self._nodes[index].await_started()

    def log(self) -> str:
        """All that the nodes printed."""
        names = ("server.log", "stderr.log", "stdout.log")
        paths = [self.directory / str(index + 1) / name for index in range(self.count) for name in names]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def stop(self) -> None:
        """Kill all nodes and remove their files."""
        for node in self._nodes:
            node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ways to connect

    def plain(self, user: str, protocol: str = "SASL_PLAINTEXT") -> Security:
        """A client that is a user of the PLAIN mechanism."""
        return self.sasl(protocol, "PLAIN", user, self.users[user])

    def sasl(self, protocol: str, mechanism: str, user: str, password: str) -> Security:
        """A client that authenticates by SASL and trusts the nodes' authority."""
        return Security(protocol, mechanism, user, password, ca=self.authority.pem, java=self._java_trust(protocol))

    def tokens(self, client: str) -> Security:
        """By a token that the client of the provider gets."""
        secret = self.provider.clients[client]
        return Security("SASL_PLAINTEXT", OAUTHBEARER, client, secret, token_url=self.provider.token_url)

    def tls(self, identity: Path | None = None) -> Security:
        """By TLS, with a certificate or without."""
        return Security("SSL", ca=self.authority.pem, identity=identity)

    def _java_trust(self, protocol: str) -> dict[str, str]:
        """Java with SASL trusts by a PKCS12 store; with TLS alone by PEM: both are seen."""
        if protocol != "SASL_SSL":
            return {}
        return {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.authority.truststore()),
            "ssl.truststore.password": STORE_PASSWORD,
        }


class _KbrokerNode:
    """kbroker by its command and the same file."""

    def __init__(self, directory: Path, properties: dict[str, str], cluster_id: str, format_options: list[str]) -> None:
        self._directory = directory
        self._cluster_id = cluster_id
        self._format_options = format_options
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "server.properties"
        self._file.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in properties.items() if value))
        self._process: subprocess.Popen[str] | None = None

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kbroker", *arguments]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}

    def launch(self) -> None:
        """Format if needed, and start."""
        if not (self._directory / "data" / "meta.properties").exists():
            command = self._command("format", "-c", str(self._file), "-t", self._cluster_id, *self._format_options)
            done = subprocess.run(command, capture_output=True, text=True, env=self._environment())
            if done.returncode:
                raise NodeError(f"kbroker format: {done.stderr}{done.stdout}")
        with (self._directory / "stderr.log").open("ab") as errors:
            self._process = subprocess.Popen(
                self._command("start", "-c", str(self._file), "--log-level", "debug"),  # tests look for secrets in it
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment(),
            )

    def await_started(self) -> None:
        """Return once it says that it serves."""
        assert self._process is not None and self._process.stdout is not None
        watchdog = threading.Timer(LONG, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
            while line and not line.startswith("kbroker ready:"):
                line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            code = self._process.wait()
            log = (self._directory / "stderr.log").read_text(errors="replace")
            raise NodeError(f"kbroker did not start (exit code {code}):\n{log[-3000:]}")

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LONG)
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None


def _escaped(value: str) -> str:
    """A value of a .properties file."""
    return value.replace("\\", "\\\\")
