"""Listeners with TLS, asked by real clients: who is let in and as whom, who is not, and what ends a start."""

from __future__ import annotations

import datetime
import functools
import logging
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError
from kbroker.node import listeners
from kbroker.node.security.security import NodeSecurity
from kbroker.node.security.tls import ListenerTls
from kbroker.node.serving.listener import ConnectionLimits
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.tls.authority import Authority, Issued
from kbroker.testing import RunningBroker, running_broker
from tests.node.node_harness import run, running_node
from tests.node.tls_harness import (
    ALICE,
    AUTHORITY,
    HOSTS,
    SECRET,
    STRANGER,
    WEEK_AGO,
    client_files,
    conf,
    consume,
    handshake,
    logged,
    principals,
    produce,
    properties,
    refusal,
    refusals,
)
from tests.patience import LONG, eventually


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are no warnings."""
    caplog.set_level(logging.INFO, "kbroker")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files for clients."""
    return client_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that asks for certificates and does not insist."""
    rules = "RULE:^CN=(\\\\w+),OU=Sales,.*$/$1/U,DEFAULT"
    with running_broker(
        properties(client__auth="requested", principal__mapping__rules=rules.replace("\\\\", "\\"))
    ) as it:
        yield it


@pytest.mark.parametrize(("certificate", "name"), [("alice.pem", "ALICE"), (None, "ANONYMOUS")])
def test_librdkafka_is_who_its_certificate_says(
    broker: RunningBroker, files: Path, certificate: str | None, name: str
) -> None:
    client = conf(broker, files, certificate)
    producer = produce(client, f"of-{name}", b"one", b"two")
    assert KafkaPrincipal("User", name) in principals(broker), "by the producer's connection, which is open"
    assert consume(client, f"of-{name}", 2) == [b"one", b"two"]
    del producer


@pytest.mark.parametrize("size", [1 << 20, 30 << 20])
def test_a_large_fetch_comes_in_pieces(broker: RunningBroker, files: Path, size: int) -> None:
    most = 64 << 20
    more = {"fetch.max.bytes": most, "fetch.message.max.bytes": most, "receive.message.max.bytes": most + 1024}
    values = [bytes([number]) * (900 << 10) for number in range(size // (900 << 10) + 1)]
    produce(conf(broker, files), f"large-{size}", *values)
    assert consume(conf(broker, files) | more, f"large-{size}", len(values)) == values


def test_who_speaks_no_tls_is_told_of_once(broker: RunningBroker) -> None:
    def ask(data: bytes) -> bytes:
        with socket.create_connection((broker.host, broker.port), LONG) as plain:
            plain.sendall(data)
            try:
                return plain.recv(100)
            except ConnectionResetError:
                return b""

    def refused(node: Any) -> list[int]:
        return [1 + told.untold for server in node.listeners for told in server.refusals._told.values()]

    for server in broker.in_broker(lambda node: node.listeners):
        server.refusals.clear()
        server.refusals.interval = LONG  # what comes later than that has a line of its own
    before = len(logged(broker))
    for _ in range(3):
        ask(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
        ask(b"GET / HTTP/1.1\r\n\r\n")
    eventually(lambda: broker.in_broker(refused) == [6])
    said = [record for record in logged(broker)[before:] if "refused a connection" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.INFO]
    assert "SSL handshake failed: it does not speak TLS" in said[0].getMessage()


def test_a_client_checks_the_node(broker: RunningBroker, files: Path) -> None:
    (files / "other.pem").write_text(Authority.create("CN=other").certificate_pem)
    assert "verify" in refusal(conf(broker, files, ssl__ca__location=str(files / "other.pem")))


@pytest.mark.parametrize(
    ("issued", "said"),
    [
        (STRANGER.issue("CN=alice"), "its certificate is not accepted"),
        (AUTHORITY.issue("CN=alice", days=1, valid_from=WEEK_AGO), "certificate has expired"),
        (AUTHORITY.issue("CN=alice", valid_from=WEEK_AGO + datetime.timedelta(days=8)), "not yet valid"),
        (None, "it shows no certificate"),
    ],
)
def test_a_node_checks_its_clients(tmp_path: Path, issued: Issued | None, said: str) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    if issued is not None:
        (tmp_path / "client.pem").write_text(issued.pem())
        context.load_cert_chain(tmp_path / "client.pem")
    with running_broker(properties(client__auth="required", principal__mapping__rules="RULE:^CN=bob$/x/")) as broker:
        assert handshake(broker, context) == b""
        texts = refusals(broker)
        assert any("SSL handshake failed" in text and said in text for text in texts), texts
        assert not any(SECRET in text or "PRIVATE KEY" in text for text in texts)


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_nothing_below_tls_1_2_is_agreed_on(broker: RunningBroker, highest: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = highest
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection((broker.host, broker.port), LONG) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")


def test_a_client_that_no_rule_fits_is_refused(tmp_path: Path) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    (tmp_path / "client.pem").write_text(ALICE.pem())
    context.load_cert_chain(tmp_path / "client.pem")
    with running_broker(properties(client__auth="required", principal__mapping__rules="RULE:^CN=bob$/x/")) as broker:
        assert handshake(broker, context) == b""
        texts = refusals(broker)
        assert any("no rule of ssl.principal.mapping.rules fits CN=alice" in text for text in texts)


def test_a_name_that_no_rule_fits_makes_no_line_of_its_own_in_the_log(tmp_path: Path) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    (tmp_path / "client.pem").write_text(AUTHORITY.issue("CN=a\\0AINFO all is well\\1B[31m").pem())
    context.load_cert_chain(tmp_path / "client.pem")
    with running_broker(properties(client__auth="required", principal__mapping__rules="RULE:^CN=bob$/x/")) as broker:
        assert handshake(broker, context) == b""
        texts = refusals(broker)
    assert any("fits CN=a\\nINFO all is well\\x1b[31m" in text for text in texts)
    assert all(text.isprintable() for text in texts)


@pytest.mark.parametrize("begun", [False, True])
def test_half_a_handshake_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    monkeypatch.setattr(listeners, "ConnectionLimits", functools.partial(ConnectionLimits, handshake=0.2))
    given = {name.replace(".", "_"): value for name, value in properties().items()}
    given["listeners"] = "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"

    async def test() -> None:
        async with running_node(tmp_path, **given) as node:
            clients = [await trio.open_tcp_stream(*node.broker.ports["SSL"]) for _ in range(20)]
            if begun:
                for client in clients:
                    await client.send_all(b"\x16\x03\x01\x02\x00\x01\x00")
            for client in clients:
                try:
                    assert await client.receive_some(100) == b""
                except trio.BrokenResourceError:
                    pass
                await client.aclose()
            server = next(server for server in node.broker.listeners if server.name == "SSL")
            assert server.connection_count == 0 and server.quota.total == 0

    run(test)


def test_garbage_leaves_nothing_behind(broker: RunningBroker, files: Path) -> None:
    garbage = random.Random(1)
    beginnings = [
        b"",
        b"\x16\x03\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x17\x03\x03\xff\xff",
        b"\x80\x2e",
    ]
    for number in range(300):
        with socket.create_connection((broker.host, broker.port), LONG) as plain:
            plain.send(beginnings[number % 5] + garbage.randbytes(garbage.randrange(2000)))
            if number % 2:
                with suppress(OSError):
                    plain.shutdown(socket.SHUT_WR)
                    while plain.recv(1000):
                        pass
    produce(conf(broker, files), "after-garbage", b"one")

    def left(node: Any) -> int:
        return int(max(server.quota.total for server in node.listeners))

    eventually(lambda: broker.in_broker(left) == 0)
    assert not any(record.exc_info for record in broker.logs)


def test_certificates_of_everybody_are_warned_of() -> None:
    given = properties(client__auth="requested") | {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    given["listener.security.protocol.map"] += ",PLAINTEXT:PLAINTEXT"
    given["security.inter.broker.protocol"] = "PLAINTEXT"
    del given["ssl.truststore.certificates"]
    with running_broker(given) as broker:
        texts = [record.getMessage() for record in broker.logs if record.levelno == logging.WARNING]
    # A busy machine may be warned of as well.
    assert len([text for text in texts if "every authority that this machine trusts" in text]) == 1


@pytest.mark.parametrize(
    ("own", "everywhere", "mode", "warned"),
    [
        ({}, "required", ssl.CERT_NONE, True),
        ({"listener.name.sasl_ssl.ssl.client.auth": "required"}, "none", ssl.CERT_REQUIRED, False),
        ({"listener.name.sasl_ssl.ssl.client.auth": "requested"}, "required", ssl.CERT_OPTIONAL, False),
        ({}, "none", ssl.CERT_NONE, False),
    ],
)
def test_with_sasl_only_the_listener_itself_asks_for_certificates(
    own: dict[str, str], everywhere: str, mode: ssl.VerifyMode, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "2@localhost:1",
        **properties(client__auth=everywhere),
        **own,
        "listener.security.protocol.map": "SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    }
    tls = ListenerTls("SASL_SSL", BrokerConfig.from_properties(given), serves=True, connects=False)
    assert tls.material.server is not None and tls.material.server.verify_mode == mode
    assert warned is any("ssl.client.auth has no effect" in record.getMessage() for record in caplog.records)


# --- at the start


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ssl.key.password": "wrong"}, "listener SSL: ssl.key.password: it does not open the private key"),
        ({"ssl.truststore.certificates": STRANGER.certificate_pem}, "cannot connect to a server with them"),
        ({"ssl.principal.mapping.rules": "x"}, "listener SSL: ssl.principal.mapping.rules"),
        ({"listener.name.ssl.ssl.enabled.protocols": "TLSv9"}, "listener SSL: ssl.enabled.protocols"),
        ({"ssl.keystore.key": "", "ssl.keystore.certificate.chain": ""}, "ssl.keystore.location is not set"),
    ],
)
def test_a_mistake_ends_the_start_with_one_line(change: dict[str, str], said: str) -> None:
    with pytest.raises(FatalError) as caught, running_broker(properties() | change):
        pass
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("days", "said"), [(10, "expires in 10 days"), (-1, "has expired"), (40, None)])
def test_a_certificate_that_expires_is_warned_of(days: int, said: str | None) -> None:
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=50)
    node = AUTHORITY.issue("CN=node", HOSTS, days=50 + days, valid_from=start)
    given = properties(node)
    if days < 0:  # between nodes it would end the start
        given["listeners"] = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        given["listener.security.protocol.map"] += ",PLAINTEXT:PLAINTEXT"
        given["security.inter.broker.protocol"] = "PLAINTEXT"
    with running_broker(given) as broker:
        texts = [record.getMessage() for record in broker.logs if "certificate" in record.getMessage()]
    assert len(texts) == (said is not None)
    assert said is None or said in texts[0]


# --- between nodes


def test_a_node_with_another_name_is_not_talked_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def network(**more: str) -> Any:
        given = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:1",
            **properties(AUTHORITY.issue("CN=x", ["elsewhere"])),
            **{f"ssl.{name.replace('__', '.')}": value for name, value in more.items()},
        }
        return NodeSecurity(BrokerConfig.from_properties(given), RealEnv()).to_brokers

    with running_broker(properties(AUTHORITY.issue("CN=x", ["localhost"]), client__auth="none")) as it:

        async def main() -> None:
            checked = network()
            (await checked.connect("localhost", it.port)).close()
            for _ in range(3):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await checked.connect("127.0.0.1", it.port)
            unchecked = network(endpoint__identification__algorithm="")
            (await unchecked.connect("127.0.0.1", it.port)).close()

        trio.run(main)
    said = [record.getMessage() for record in caplog.records if "cannot connect to" in record.getMessage()]
    assert len(said) == 1 and "IP address mismatch" in said[0], "once, as long as nothing changes"
