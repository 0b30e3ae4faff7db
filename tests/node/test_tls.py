"""Listeners with TLS, asked by real clients: who is let in and as whom, who is not, and certificates that change."""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from node_harness import run, running_node

from kbroker.errors import FatalError
from kbroker.node import listeners
from kbroker.node.listener import ConnectionLimits
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.tls.authority import Authority, Issued
from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.cluster import RunningCluster

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


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are no warnings."""
    caplog.set_level(logging.INFO, "kbroker")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files for clients."""
    path = tmp_path_factory.mktemp("tls")
    (path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    (path / "alice.pem").write_text(ALICE.pem())
    return path


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker that asks for certificates and does not insist."""
    rules = "RULE:^CN=(\\\\w+),OU=Sales,.*$/$1/U,DEFAULT"
    with running_broker(
        properties(client__auth="requested", principal__mapping__rules=rules.replace("\\\\", "\\"))
    ) as it:
        yield it


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
    """Whose connections are open."""

    def ask(node: Any) -> set[KafkaPrincipal]:
        return {connection.principal for server in node.listeners for connection in server._connections}

    return broker.in_broker(ask)


def refusal(client: Mapping[str, Any]) -> str:
    """Why a client of librdkafka cannot connect, by its own words."""
    errors: list[KafkaError] = []
    admin = AdminClient({**client, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    for _ in range(50):
        if any(error.code() == KafkaError._SSL for error in errors):
            break
        admin.poll(0.1)
    return " ".join(error.str() for error in errors)


def produce(client: Mapping[str, Any], topic: str, *values: bytes) -> None:
    producer = Producer({"linger.ms": 0, **client})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def consume(client: Mapping[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"group.id": "none", "enable.auto.commit": False, **client})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 10)
        assert messages, f"{len(found)} of {count}"
        found += [message.value() for message in messages]
    consumer.close()
    return found


@pytest.mark.parametrize(("certificate", "name"), [("alice.pem", "ALICE"), (None, "ANONYMOUS")])
def test_librdkafka_is_who_its_certificate_says(
    broker: RunningBroker, files: Path, certificate: str | None, name: str
) -> None:
    client = conf(broker, files, certificate)
    produce(client, f"of-{name}", b"one", b"two")
    assert consume(client, f"of-{name}", 2) == [b"one", b"two"]
    admin = AdminClient(client)
    admin.list_topics(timeout=10)
    assert KafkaPrincipal("User", name) in principals(broker)


def test_kafka_python(broker: RunningBroker, files: Path) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    client = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(files / "ca.pem"),
        "ssl_certfile": str(files / "alice.pem"),
    }
    producer = KafkaProducer(**client)
    producer.send("kafka-python", b"one").get(10)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=10_000, **client)
    assert next(iter(consumer)).value == b"one"
    consumer.close()


def test_aiokafka(broker: RunningBroker) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    client = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def talk() -> None:
        async with AIOKafkaProducer(**client) as producer:
            await producer.send_and_wait("aiokafka", b"one")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **client) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"one"

    asyncio.run(talk())


@pytest.mark.parametrize("size", [1 << 20, 30 << 20])
def test_a_large_fetch_comes_in_pieces(broker: RunningBroker, files: Path, size: int) -> None:
    most = 64 << 20
    more = {"fetch.max.bytes": most, "fetch.message.max.bytes": most, "receive.message.max.bytes": most + 1024}
    values = [bytes([number]) * (900 << 10) for number in range(size // (900 << 10) + 1)]
    produce(conf(broker, files), f"large-{size}", *values)
    assert consume(conf(broker, files) | more, f"large-{size}", len(values)) == values


def test_who_speaks_no_tls_is_told_of_once(broker: RunningBroker) -> None:
    def ask(data: bytes) -> bytes:
        with socket.create_connection((broker.host, broker.port), 10) as plain:
            plain.sendall(data)
            try:
                return plain.recv(100)
            except ConnectionResetError:
                return b""

    for server in broker.in_broker(lambda node: node.listeners):
        server._refused_logged.clear()
    for _ in range(3):
        ask(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
        ask(b"GET / HTTP/1.1\r\n\r\n")
    said = [record for record in logged(broker) if "refused a connection" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.INFO]
    assert "SSL handshake failed: it does not speak TLS" in said[0].getMessage()


def test_a_client_checks_the_node(broker: RunningBroker, files: Path) -> None:
    (files / "other.pem").write_text(Authority.create("CN=other").certificate_pem)
    assert "verify" in refusal(conf(broker, files, ssl__ca__location=str(files / "other.pem")))


STRANGER = Authority.create("CN=other")
WEEK_AGO = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=7)


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
        texts = [record.getMessage() for record in logged(broker)]
        assert any("SSL handshake failed" in text and said in text for text in texts), texts
        assert not any(SECRET in text or "PRIVATE KEY" in text for text in texts)


def logged(broker: RunningBroker) -> list[logging.LogRecord]:
    """What the node has said, once its present step is done."""
    return broker.in_broker(lambda node: list(broker.logs))


def handshake(broker: RunningBroker, context: ssl.SSLContext) -> bytes:
    """Shake hands and wait for the node to close."""
    with socket.create_connection((broker.host, broker.port), 10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                return client.recv(100)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_a_client_that_no_rule_fits_is_refused(tmp_path: Path) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    (tmp_path / "client.pem").write_text(ALICE.pem())
    context.load_cert_chain(tmp_path / "client.pem")
    with running_broker(properties(client__auth="required", principal__mapping__rules="RULE:^CN=bob$/x/")) as broker:
        assert handshake(broker, context) == b""
        texts = [record.getMessage() for record in logged(broker)]
        assert any("no rule of ssl.principal.mapping.rules fits CN=alice" in text for text in texts)


@pytest.mark.parametrize("begun", [False, True])
def test_half_a_handshake_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    monkeypatch.setattr(listeners, "ConnectionLimits", functools.partial(ConnectionLimits, first_frame=0.2))
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
            assert server.connection_count == 0 and server._quota.total == 0

    run(test)


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


# --- while it runs


def serial(broker: RunningBroker) -> int:
    """Of the certificate that a new connection is shown."""
    from cryptography import x509

    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    with (
        socket.create_connection((broker.host, broker.port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        der = client.getpeercert(True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def until(condition: Callable[[], bool], broker: RunningBroker) -> None:
    """Have the node look at its stores until something holds."""

    async def look(node: Any) -> None:
        await node.security.look(node._dynamic_config.with_prefix("listener.name."))

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        broker.in_broker_async(look)
        if condition():
            return
    raise AssertionError([record.getMessage() for record in broker.logs])


def in_files(path: Path, node: Issued = NODE) -> dict[str, str]:
    (path / "node.pem").write_text(node.pem())
    (path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    given = properties()
    for name in ("keystore.key", "keystore.certificate.chain", "truststore.certificates", "key.password"):
        del given[f"ssl.{name}"]
    return given | {
        "ssl.keystore.location": str(path / "node.pem"),
        "ssl.truststore.location": str(path / "ca.pem"),
    }


def test_a_file_that_changes_is_read_again(tmp_path: Path, files: Path) -> None:
    new = AUTHORITY.issue("CN=node,O=Example", [*HOSTS, "also.example"])
    with running_broker(in_files(tmp_path)) as broker:
        producer = Producer(conf(broker, files, None, linger__ms=0))
        producer.produce("t", b"before")
        assert producer.flush(10) == 0
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
        assert producer.flush(10) == 0


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
            socket.create_connection((host, int(port)), 10) as plain,
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
            socket.create_connection((broker.host, broker.port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\x01\0\x06client")
            assert len(client.recv(4)) == 4
        (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem)
        until(lambda: any("has read its TLS stores again" in record.getMessage() for record in broker.logs), broker)
        assert handshake(broker, context) == b""


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
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_a_key_store_is_changed_by_request(tmp_path: Path, files: Path) -> None:
    new = AUTHORITY.issue("CN=node,O=Example", HOSTS)
    (tmp_path / "new.p12").write_bytes(new.pkcs12(SECRET))
    (tmp_path / "other.pem").write_text(AUTHORITY.issue("CN=node,O=Example", ["localhost"]).pem())
    with running_broker(in_files(tmp_path)) as broker:
        admin = AdminClient(conf(broker, files, None))
        with pytest.raises(KafkaException, match="cannot open"):
            alter(admin, keystore__location=str(tmp_path / "new.p12"), keystore__password="wrong")
        with pytest.raises(KafkaException, match=r"not for IPAddress:127\.0\.0\.1 any more"):
            alter(admin, keystore__location=str(tmp_path / "other.pem"))
        with pytest.raises(KafkaException, match="cannot be changed while kbroker runs"):
            alter(admin, client__auth="required")
        assert serial(broker) == NODE.certificate.serial_number
        alter(admin, keystore__location=str(tmp_path / "new.p12"), keystore__password=SECRET)
        until(lambda: serial(broker) == new.certificate.serial_number, broker)
        resource = ConfigResource(ResourceType.BROKER, "1")
        described = admin.describe_configs([resource])[resource].result(10)
        assert SECRET not in repr({name: entry.value for name, entry in described.items()})
        assert described["listener.name.ssl.ssl.keystore.location"].value == str(tmp_path / "new.p12")
        assert described["listener.name.ssl.ssl.keystore.password"].is_sensitive
        (tmp_path / "node.pem").write_text(NODE.pem())
        broker.restart()
        assert serial(broker) == new.certificate.serial_number, "what was set at run time holds from the start on"
        alter(AdminClient(conf(broker, files, None)), keystore__location=None, keystore__password=None)
        until(lambda: serial(broker) == NODE.certificate.serial_number, broker)
        assert not any(SECRET in record.getMessage() for record in broker.logs)


# --- between nodes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three nodes that reach one another by TLS only, and show their certificates."""
    (tmp_path / "node.pem").write_text(NODE.pem())
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate_pem)
    nodes = RunningCluster(
        3,
        {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
            "ssl.keystore.location": str(tmp_path / "node.pem"),
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.client.auth": "required",
        },
    )
    try:
        for node in nodes.nodes:
            node.start(wait=False)
        for node in nodes.nodes:
            node.await_ready()
        yield nodes
    finally:
        nodes.stop()


def test_three_nodes_reach_one_another(cluster: RunningCluster, files: Path) -> None:
    from confluent_kafka.admin import NewTopic

    client = conf(cluster, files, acks="all")  # type: ignore[arg-type]
    admin = AdminClient({name: value for name, value in client.items() if name != "acks"})
    admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "3"})])["t"].result(20)
    values = [b"%d" % number for number in range(1000)]
    produce(client, "t", *values)
    reader = {name: value for name, value in client.items() if name != "acks"}
    assert consume(reader, "t", 1000) == values
    assert len(admin.list_topics(timeout=10).topics["t"].partitions[0].isrs) == 3
    assert not any("cannot connect to" in node.log for node in cluster.nodes)


def test_a_node_with_another_name_is_not_talked_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from kbroker.config import BrokerConfig
    from kbroker.env import RealEnv
    from kbroker.node.security import NodeSecurity

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


# --- Apache Kafka's own tools


@pytest.mark.kafka
@pytest.mark.slow
def test_the_java_clients_use_their_stores(
    broker: RunningBroker, kafka_home: Path, tmp_path: Path, files: Path
) -> None:
    import os
    import subprocess

    (tmp_path / "alice.p12").write_bytes(ALICE.pkcs12("secret1"))
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={files / 'ca.pem'}\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={tmp_path / 'alice.p12'}\nssl.keystore.password=secret1\n"
    )
    tool = Path(os.environ["KAFKA_HOME"]) / "bin" / "kafka-producer-perf-test.sh"
    done = subprocess.run(
        [
            *(tool, "--bootstrap-server", broker.bootstrap_servers, "--topic", "java", "--num-records", "2000"),
            *("--record-size", "1000", "--throughput", "-1", "--command-config", tmp_path / "client.properties"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "2000 records sent" in done.stdout, done
    assert len(consume(conf(broker, files), "java", 2000)) == 2000
