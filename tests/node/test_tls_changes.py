"""Stores of TLS that change while a node runs: by their files, and by request."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kbroker.testing import running_broker
from tests.node.tls_harness import (
    AUTHORITY,
    HOSTS,
    NODE,
    SECRET,
    STRANGER,
    client_files,
    conf,
    handshake,
    in_files,
    serial,
    until,
)
from tests.patience import LONG


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are no warnings."""
    caplog.set_level(logging.INFO, "kbroker")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files for clients."""
    return client_files(tmp_path_factory.mktemp("tls"))


def test_a_file_that_changes_is_read_again(tmp_path: Path, files: Path) -> None:
    new = AUTHORITY.issue("CN=node,O=Example", [*HOSTS, "also.example"])
    with running_broker(in_files(tmp_path)) as broker:
        producer = Producer(conf(broker, files, None, linger__ms=0))
        producer.produce("t", b"before")
        assert producer.flush(LONG) == 0
        assert serial(broker) == NODE.certificate.serial_number
        (tmp_path / "node.pem").write_text("-----BEGIN nothing")
        until(lambda: any("keeps its TLS stores" in record.getMessage() for record in broker.logs), broker)
        assert serial(broker) == NODE.certificate.serial_number
        (tmp_path / "node.pem").write_text(AUTHORITY.issue("CN=other", HOSTS).pem())
        until(lambda: any("distinguished name is CN=other" in record.getMessage() for record in broker.logs), broker)
        assert serial(broker) == NODE.certificate.serial_number
        (tmp_path / "node.pem").write_text(new.pem())
        until(lambda: serial(broker) == new.certificate.serial_number, broker)
        producer.produce("t", b"after")  # on the connection that it has
        assert producer.flush(LONG) == 0


def test_a_certificate_of_another_name_is_taken_if_that_is_allowed(tmp_path: Path) -> None:
    new = AUTHORITY.issue("CN=other", ["localhost"])
    given = in_files(tmp_path) | {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    with running_broker(given) as broker:
        (tmp_path / "node.pem").write_text(new.pem())
        until(lambda: serial(broker) == new.certificate.serial_number, broker)


def test_each_listener_has_its_own_stores(tmp_path: Path) -> None:
    outside = AUTHORITY.issue("CN=outside", HOSTS)
    given = in_files(tmp_path) | {
        "listeners": "SSL://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,OUTSIDE:SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "listener.name.outside.ssl.client.auth": "none",
        "listener.name.outside.ssl.keystore.location": str(tmp_path / "outside.p12"),
        "listener.name.outside.ssl.keystore.password": SECRET,
    }
    (tmp_path / "outside.p12").write_bytes(outside.pkcs12(SECRET))
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    with running_broker(given) as broker:
        host, port = broker.address("OUTSIDE").split(":")
        with (
            socket.create_connection((host, int(port)), LONG) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            assert dict(part[0] for part in client.getpeercert()["subject"]) == {"commonName": "outside"}  # type: ignore
            client.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
            assert len(client.recv(4)) == 4
        assert handshake(broker, context) == b"", "the other one wants a certificate"


def test_an_authority_that_is_removed_is_not_trusted_any_more(tmp_path: Path) -> None:
    given = in_files(tmp_path) | {"ssl.client.auth": "required"}
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem + STRANGER.certificate_pem)
    (tmp_path / "client.pem").write_text(STRANGER.issue("CN=alice").pem())
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    context.load_cert_chain(tmp_path / "client.pem")
    with running_broker(given) as broker:
        with (
            socket.create_connection((broker.host, broker.port), LONG) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
            assert len(client.recv(4)) == 4
        (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem)
        until(lambda: any("has read its TLS stores again" in record.getMessage() for record in broker.logs), broker)
        assert handshake(broker, context) == b""


UNUSABLE = "The listeners cannot have these stores: ssl.{}.location: the store cannot be used; the log of the node"


def alter(admin: AdminClient, **changes: str | None) -> None:
    """Change node 1's properties; None removes one."""
    entries = [
        ConfigEntry(
            f"listener.name.ssl.ssl.{name.replace('__', '.')}",
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(LONG)


def test_a_key_store_is_changed_by_request(tmp_path: Path, files: Path) -> None:
    new = AUTHORITY.issue("CN=node,O=Example", HOSTS)
    (tmp_path / "new.p12").write_bytes(new.pkcs12(SECRET))
    (tmp_path / "other.pem").write_text(AUTHORITY.issue("CN=node,O=Example", ["localhost"]).pem())
    with running_broker(in_files(tmp_path)) as broker:
        admin = AdminClient(conf(broker, files, None))
        with pytest.raises(KafkaException, match=UNUSABLE.format("keystore")):
            alter(admin, keystore__location=str(tmp_path / "new.p12"), keystore__password="wrong")
        assert any("cannot open" in record.getMessage() for record in broker.logs)
        with pytest.raises(KafkaException, match=r"not for IPAddress:127\.0\.0\.1 any more"):
            alter(admin, keystore__location=str(tmp_path / "other.pem"))
        assert serial(broker) == NODE.certificate.serial_number
        alter(admin, keystore__location=str(tmp_path / "new.p12"), keystore__password=SECRET)
        until(lambda: serial(broker) == new.certificate.serial_number, broker)
        resource = ConfigResource(ResourceType.BROKER, "1")
        described = admin.describe_configs([resource])[resource].result(LONG)
        assert SECRET not in repr({name: entry.value for name, entry in described.items()})
        assert described["listener.name.ssl.ssl.keystore.location"].value == str(tmp_path / "new.p12")
        assert described["listener.name.ssl.ssl.keystore.password"].is_sensitive
        (tmp_path / "node.pem").write_text(NODE.pem())
        broker.restart()
        assert serial(broker) == new.certificate.serial_number, "what was set at run time holds from the start on"
        alter(AdminClient(conf(broker, files, None)), keystore__location=None, keystore__password=None)
        until(lambda: serial(broker) == NODE.certificate.serial_number, broker)
        assert not any(SECRET in record.getMessage() for record in broker.logs)


def test_who_is_let_in_is_changed_by_request_for_connections_from_then_on(tmp_path: Path, files: Path) -> None:
    """The properties of a listener's TLS that are no stores, with the listener's prefix or for all listeners."""
    (tmp_path / "client.pem").write_text(AUTHORITY.issue("CN=alice").pem())
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    stranger = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    known = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    known.load_cert_chain(tmp_path / "client.pem")

    def version(context: ssl.SSLContext) -> str | None:
        with (
            socket.create_connection((broker.host, broker.port), LONG) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
            return client.version() if client.recv(4) else None

    def is_let_in(context: ssl.SSLContext) -> bool:
        try:
            return version(context) is not None
        except OSError:
            return False

    with running_broker(in_files(tmp_path)) as broker:
        admin = AdminClient(conf(broker, files, None))
        assert is_let_in(stranger) and version(known) == "TLSv1.3"
        alter(admin, client__auth="required")
        until(lambda: not is_let_in(stranger), broker)
        assert is_let_in(known)
        own = ConfigEntry("ssl.enabled.protocols", "TLSv1.2", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[own])
        admin.incremental_alter_configs([resource])[resource].result(LONG)  # its connection goes on
        until(lambda: version(known) == "TLSv1.2", broker)
        alter(admin, client__auth=None)
        until(lambda: is_let_in(stranger), broker)


def test_a_client_does_not_learn_of_files_nor_stops_the_node_with_one(tmp_path: Path, files: Path) -> None:
    """A pipe that nobody writes to would hold a thread for ever, and there are forty of them."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("no store")
    (tmp_path / "pem").write_text("-----BEGIN NOTHING-----")
    said = set()
    with running_broker(in_files(tmp_path)) as broker:
        admin = AdminClient(conf(broker, files, None))
        for path in [*["pipe"] * 45, "text", "pem", "not there", "not\nthere", "."]:
            with pytest.raises(KafkaException, match=UNUSABLE.format("truststore")) as caught:
                alter(admin, truststore__location=str(tmp_path / path))
            said.add(caught.value.args[0].str())
        logged = [record.getMessage() for record in broker.logs]
    assert len(said) == 1
    assert any(line.endswith("pipe is not a file") for line in logged)
    assert any("not\\nthere" in line for line in logged)
    assert not any("not\nthere" in line for line in logged)
