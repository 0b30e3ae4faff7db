"""Nodes with TLS, clients that ask them, and what both have said."""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.tls.authority import Authority, Issued
from kbroker.testing import RunningBroker
from tests.patience import LONG, eventually

AUTHORITY = Authority.create()
HOSTS = ["localhost", "127.0.0.1"]
NODE = AUTHORITY.issue("CN=node,O=Example", HOSTS)
ALICE = AUTHORITY.issue("CN=alice,OU=Sales,O=Example")
MAP = {"listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT", "security.inter.broker.protocol": "SSL"}
SECRET = "hunter2-secret"


def properties(node: Issued = NODE, **more: str) -> dict[str, str]:
    """A node with one listener of clients; ``client__auth`` stands for ``ssl.client.auth``."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        **MAP,
        "ssl.keystore.key": node.key_pem(SECRET),
        "ssl.keystore.certificate.chain": node.certificate_pem,
        "ssl.key.password": SECRET,
        "ssl.truststore.certificates": AUTHORITY.certificate_pem,
        **{f"ssl.{name.replace('__', '.')}": value for name, value in more.items()},
    }


def client_files(path: Path) -> Path:
    """A directory, with PEM files for clients in it."""
    (path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    (path / "alice.pem").write_text(ALICE.pem())
    return path


def conf(broker: RunningBroker, files: Path, certificate: str | None = "alice.pem", **more: Any) -> dict[str, Any]:
    """A client of librdkafka; ``ssl__ca__location`` stands for ``ssl.ca.location``."""
    own = {} if certificate is None else {"ssl.certificate.location": str(files / certificate)}
    own |= {} if certificate is None else {"ssl.key.location": str(files / certificate)}
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(files / "ca.pem"),
        "log_level": 0,
        **own,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def principals(broker: RunningBroker) -> set[KafkaPrincipal]:
    """The owners of the open connections."""

    def ask(node: Any) -> set[KafkaPrincipal]:
        return {connection.principal for server in node.listeners for connection in server.connections}

    return broker.in_broker(ask)


def refusal(client: Mapping[str, Any]) -> str:
    """The errors, as text, of a client of librdkafka that cannot connect."""
    errors: list[KafkaError] = []
    given: dict[str, Any] = {**client, "error_cb": errors.append}
    admin = AdminClient(given)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    deadline = time.monotonic() + LONG
    while not any(error.code() == KafkaError._SSL for error in errors) and time.monotonic() < deadline:
        admin.poll(0.1)
    return " ".join(error.str() for error in errors)


def produce(client: Mapping[str, Any], topic: str, *values: bytes) -> Producer:
    """Have records acknowledged. The connection to the leader is open for as long as the producer is kept.

    An ``AdminClient`` promises no such thing: librdkafka ends the connection by which it has learned of the brokers,
    and opens another when there is something to ask.
    """
    producer = Producer({"linger.ms": 0, **client})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(LONG) == 0
    return producer


def consume(client: Mapping[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"group.id": "none", "enable.auto.commit": False, **client})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), LONG)
        assert messages, f"{len(found)} of {count}"
        found += [message.value() or b"" for message in messages]
    consumer.close()
    return found


STRANGER = Authority.create("CN=other")
WEEK_AGO = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=7)


def logged(broker: RunningBroker) -> list[logging.LogRecord]:
    """The node's log, once its present step is done."""
    return broker.in_broker(lambda node: list(broker.logs))


def refusals(broker: RunningBroker) -> list[str]:
    """All that the node has said, once it has said that it refused a connection: its client may know that before."""
    eventually(lambda: any("refused a connection" in record.getMessage() for record in logged(broker)))
    return [record.getMessage() for record in logged(broker)]


def handshake(broker: RunningBroker, context: ssl.SSLContext) -> bytes:
    """Shake hands and wait for the node to close."""
    with socket.create_connection((broker.host, broker.port), LONG) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                return client.recv(100)
        except (ssl.SSLError, ConnectionError):
            return b""


def serial(broker: RunningBroker) -> int:
    """Of the certificate that a new connection is shown."""
    from cryptography import x509

    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    with (
        socket.create_connection((broker.host, broker.port), LONG) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        der = client.getpeercert(True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def until(condition: Callable[[], bool], broker: RunningBroker) -> None:
    """Have the node look at its stores until something holds."""

    async def look(node: Any) -> None:
        await node.security.look(node._dynamic_config.of_listeners())

    def is_so() -> bool:
        broker.in_broker_async(look)
        return condition()

    eventually(is_so)


def in_files(path: Path, node: Issued = NODE) -> dict[str, str]:
    (path / "node.pem").write_text(node.pem())
    (path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    given = properties()
    for name in ("keystore.key", "keystore.certificate.chain", "truststore.certificates", "key.password"):
        del given[f"ssl.{name}"]
    return given | {"ssl.keystore.location": str(path / "node.pem"), "ssl.truststore.location": str(path / "ca.pem")}
