"""Settings of listeners that change at run time (KIP-226): how clients log in, who they are, which listeners there are.

TLS is in `tests/node/test_tls_changes.py`. What holds is that of connections from then on; those that are open go on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from kbroker.config.security.rules import DEFAULT_PRINCIPAL_BUILDER
from kbroker.errors import ErrorCode
from kbroker.testing import running_broker
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.metadata import MetadataRequest
from tests.node.node_harness import Client, Node, running_node
from tests.node.quorum_harness import three_nodes
from tests.node.test_sasl import ALICE, LISTENER, PLAIN_LINE, PROPERTIES, authenticate, handshake, logged_in
from tests.patience import LONG, until

JAAS = f"{LISTENER}.plain.sasl.jaas.config"
LDAP = 'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://10.0.0.1/";'
KERBEROS = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    ' keyTab="/no/such/file" principal="kafka/localhost@REALM";'
)
BUILDER = "principal.builder.class"


async def alter(client: Client, node_id: int = 1, /, **changes: str | None) -> tuple[int, str]:
    """Change a node's properties, None removes one; the error."""
    configs = [
        IncrementalAlterableConfig(name=name, config_operation=0 if value is not None else 1, value=value)
        for name, value in changes.items()
    ]
    resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=str(node_id), configs=configs)
    [answer] = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return int(answer.error_code), answer.error_message or ""


async def login(node: Node, token: bytes) -> int:
    """The error of a new connection's login."""
    client = await node.connect()
    await handshake(client)
    return int((await authenticate(client, token)).error_code)


async def test_users_and_mechanisms_are_others_for_connections_from_then_on(tmp_path: Path) -> None:
    async with running_node(tmp_path, **PROPERTIES) as node:
        admin = await logged_in(node)
        changed = PLAIN_LINE.replace("alice-secret", "alice-another")
        assert (await alter(admin, **{JAAS: changed}))[0] == 0

        async def is_changed() -> bool:
            return await login(node, b"\0alice\0alice-another") == 0

        await until(is_changed)
        assert await login(node, ALICE) == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (await admin.ask(MetadataRequest(topics=[]))).brokers, "its connection goes on"
        code, message = await alter(admin, **{JAAS: "nonsense"})
        assert code == ErrorCode.INVALID_REQUEST and message.startswith(JAAS) and "secret" not in message
        for other in ("plaintext", "of.nobody"):
            ldap = {f"listener.name.{other}.plain.sasl.jaas.config": LDAP}
            assert (await alter(admin, **ldap))[0] == (ErrorCode.INVALID_REQUEST if other == "plaintext" else 0)
        kerberos = {f"{LISTENER}.gssapi.sasl.jaas.config": KERBEROS, "sasl.enabled.mechanisms": "PLAIN,GSSAPI"}
        code, message = await alter(admin, **kerberos)
        assert code == ErrorCode.INVALID_REQUEST and "No such file" not in message
        code, message = await alter(admin, **{"sasl.enabled.mechanisms": "NOSUCH"})
        assert code == ErrorCode.INVALID_REQUEST and "NOSUCH is not supported" in message
        assert await alter(admin, **{f"{LISTENER}.sasl.enabled.mechanisms": "SCRAM-SHA-256"}) == (0, "")

        async def offers_scram_alone() -> bool:
            return list((await handshake(await node.connect())).mechanisms) == ["SCRAM-SHA-256"]

        await until(offers_scram_alone)
        assert await alter(admin, **{f"{LISTENER}.sasl.enabled.mechanisms": None, JAAS: None}) == (0, "")

        async def is_as_before() -> bool:
            response = await handshake(client := await node.connect())
            return bool(response.error_code == 0 and (await authenticate(client, ALICE)).error_code == 0)

        await until(is_as_before)


async def test_whoever_authenticates_again_does_so_by_what_holds_now(tmp_path: Path) -> None:
    """KIP-368: no session is renewed by a password or a mechanism that was taken away since it began."""
    async with running_node(tmp_path, **PROPERTIES, **{"connections.max.reauth.ms": "60000"}) as node:
        admin = await logged_in(node, b"\0broker\0broker-secret")
        early, late, changed, gone = [await logged_in(node) for _ in range(4)]
        assert (await handshake(early)).error_code == 0  # whose token comes when the password is another
        another = b"\0alice\0alice-another"
        assert (await alter(admin, **{JAAS: PLAIN_LINE.replace("alice-secret", "alice-another")}))[0] == 0

        async def is_changed() -> bool:
            return await login(node, another) == 0

        await until(is_changed)
        for client in (late, changed):
            assert (await handshake(client)).error_code == 0
        failed = ErrorCode.SASL_AUTHENTICATION_FAILED
        for client, token, code in ((early, ALICE, failed), (late, ALICE, failed), (changed, another, 0)):
            assert (await authenticate(client, token)).error_code == code
        assert await alter(admin, **{f"{LISTENER}.sasl.enabled.mechanisms": "SCRAM-SHA-256"}) == (0, "")

        async def is_gone() -> bool:
            return list((await handshake(await node.connect())).mechanisms) == ["SCRAM-SHA-256"]

        await until(is_gone)
        assert (await handshake(gone)).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


async def test_what_was_set_before_holds_from_the_start_on(tmp_path: Path) -> None:
    async with running_node(tmp_path, **PROPERTIES) as node:
        admin = await logged_in(node)
        assert await alter(admin, **{f"{LISTENER}.sasl.enabled.mechanisms": "SCRAM-SHA-256"}) == (0, "")
    async with running_node(tmp_path, **PROPERTIES) as node:
        assert list((await handshake(await node.connect())).mechanisms) == ["SCRAM-SHA-256"]


async def test_a_builder_of_principals_takes_turns_with_the_usual_one(tmp_path: Path) -> None:
    """Of code only what the node's own file names: nobody has a node import anything over the wire."""
    (tmp_path / "who.py").write_text("def build(peer):\n    return 'User:built'\n")
    own = f"python:{tmp_path / 'who.py'}:build"
    usual = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    async with running_node(tmp_path, **{BUILDER: own}) as node:

        async def name() -> str:
            client = await node.connect()
            assert (await client.ask(MetadataRequest(topics=[]))).brokers
            [connection] = node.connections_of([client])
            return str(connection.principal.name)

        admin = await node.connect()
        assert await name() == "built"
        for value in ("no.such.Class", own.replace("who.py", "other.py"), "python:os:system"):
            code, message = await alter(admin, **{BUILDER: value})
            assert code == ErrorCode.INVALID_REQUEST and BUILDER in message
        turns: list[tuple[str | None, str]] = [(usual, "ANONYMOUS"), (None, "built")]
        for turn, wanted in turns:
            assert await alter(admin, **{BUILDER: turn}) == (0, "")

            async def is_built(wanted: str = wanted) -> bool:
                return await name() == wanted

            await until(is_built)


async def test_a_node_runs_no_code_that_a_controller_has_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller does not know what the file of another node names: the broker goes on as its own file says."""
    (tmp_path / "who.py").write_text("def build(peer):\n    return 'User:built'\n")
    async with three_nodes(tmp_path, properties={BUILDER: f"python:{tmp_path / 'who.py'}:build"}) as cluster:
        active = await cluster.await_leader()
        broker = next(node_id for node_id in cluster.nodes if node_id != active)
        controller = await cluster.controller_client(active)
        assert await alter(controller, broker, **{BUILDER: "python:os:system"}) == (0, "")
        await cluster.until(lambda: "python:os:system is not in the node's own file" in caplog.text)
        node = cluster.node(broker)
        client = await node.connect()
        assert (await client.ask(MetadataRequest(topics=[]))).brokers
        [connection] = node.connections_of([client])
        assert connection.principal.name == "built"


async def test_listeners_are_opened_and_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:SASL_PLAINTEXT"
    users = {JAAS.replace("plaintext", "more", 1): PLAIN_LINE, "listener.name.more.sasl.enabled.mechanisms": "PLAIN"}
    async with running_node(tmp_path) as node:
        before = node.broker.config.raw["listeners"]
        admin = await node.connect()
        code, message = await alter(admin, listeners=f"{before},MORE://127.0.0.1:0")
        assert code == ErrorCode.INVALID_REQUEST and "MORE has no security protocol" in message
        code, message = await alter(admin, **{"node.id": None}, listeners="CONTROLLER://127.0.0.1:0")
        assert code == ErrorCode.INVALID_REQUEST and "a broker needs a listener" in message
        changes = {"listeners": f"{before},MORE://127.0.0.1:0", "listener.security.protocol.map": protocols}
        assert await alter(admin, **users, **changes) == (0, "")

        async def is_open() -> bool:
            return "MORE" in node.broker.ports and "MORE" in {each.name for each in node.broker.listeners}

        await until(is_open)
        client = await node.connect("MORE")
        await handshake(client)
        assert (await authenticate(client, ALICE)).error_code == 0
        assert (await client.ask(MetadataRequest(topics=[]))).error_code == 0
        address = node.broker.ports["MORE"]
        moved = f"{before.replace('127.0.0.1', '127.0.0.2')},MORE://127.0.0.1:0"
        assert await alter(admin, listeners=moved) == (0, "")

        async def is_warned_of() -> bool:
            return [text.split()[1] for text in caplog.messages if "keeps the address" in text] == warned

        warned = ["PLAINTEXT", "CONTROLLER"]
        await until(is_warned_of)
        assert await alter(admin, listeners=None) == (0, "")

        async def is_refused() -> bool:
            try:
                await (await trio.open_tcp_stream(*address)).aclose()
            except OSError:
                return True
            return False

        await until(is_refused)
        assert await client.stream.receive_some(1) == b"", "who was connected there is not any more"
        assert (await admin.ask(MetadataRequest(topics=[]))).brokers
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_listener_takes_the_port_of_one_that_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ONE:PLAINTEXT,OTHER:PLAINTEXT"
    async with running_node(tmp_path) as node:
        before = node.broker.config.raw["listeners"]
        admin = await node.connect()
        changes = {"listeners": f"{before},ONE://127.0.0.1:0", "listener.security.protocol.map": protocols}
        assert await alter(admin, **changes) == (0, "")

        async def is_open(name: str) -> bool:
            return name in {each.name for each in node.broker.listeners}

        await until(lambda: is_open("ONE"))
        client = await node.connect("ONE")
        port = node.broker.ports["ONE"][1]
        assert await alter(admin, listeners=f"{before},OTHER://127.0.0.1:{port}") == (0, "")
        await until(lambda: is_open("OTHER"))
        assert await client.stream.receive_some(1) == b""
        assert (await (await node.connect("OTHER")).ask(MetadataRequest(topics=[]))).error_code == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_listener_that_is_added_has_the_builder_of_the_nodes_file(tmp_path: Path) -> None:
    (tmp_path / "who.py").write_text("def build(peer):\n    return 'User:built'\n")
    builders = {
        BUILDER: f"python:{tmp_path / 'who.py'}:build",
        f"{LISTENER}.{BUILDER}": DEFAULT_PRINCIPAL_BUILDER,
        f"listener.name.controller.{BUILDER}": DEFAULT_PRINCIPAL_BUILDER,
    }
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:PLAINTEXT"
    async with running_node(tmp_path / "node", **builders) as node:
        before = node.broker.config.raw["listeners"]
        admin = await node.connect()
        changes = {"listeners": f"{before},MORE://127.0.0.1:0", "listener.security.protocol.map": protocols}
        assert await alter(admin, **changes) == (0, "")

        async def is_open() -> bool:
            return "MORE" in {each.name for each in node.broker.listeners}

        await until(is_open)
        client = await node.connect("MORE")
        assert (await client.ask(MetadataRequest(topics=[]))).error_code == 0
        assert [each.principal.name for each in node.connections_of([client], "MORE")] == ["built"]


async def test_a_node_judges_its_listeners_where_a_controller_could_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The controllers' listener takes what no broker has judged: nobody gets in by that, and no listener goes."""
    in_the_clear = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:PLAINTEXT"
    async with three_nodes(tmp_path, properties=PROPERTIES) as cluster:
        active = await cluster.await_leader()
        broker = next(node_id for node_id in cluster.nodes if node_id != active)
        controller, node = await cluster.controller_client(active), cluster.node(broker)
        changes = {"listener.security.protocol.map": in_the_clear, f"{LISTENER}.sasl.kerberos.service.name": "k"}
        assert await alter(controller, broker, **changes) == (0, "")
        await cluster.until(lambda: "Security protocol cannot be updated for existing listener" in caplog.text)
        stranger = await node.connect()
        await stranger.send(MetadataRequest(topics=[]))
        assert await stranger.closed()
        await logged_in(node)
        others = dict.fromkeys(changes) | {"listeners": "PLAINTEXT://127.0.0.1:0"}
        assert await alter(controller, broker, **others) == (0, "")
        await cluster.until(lambda: "set at run time, but without effect on this node: listeners" in caplog.text)
        await logged_in(node)
        assert {listener.name for listener in node.broker.listeners} == {"PLAINTEXT", "CONTROLLER"}


def test_librdkafka_sets_a_property_of_kerberos(tmp_path: Path) -> None:
    """The case of librdkafka's test of its admin client."""
    admin = pytest.importorskip("confluent_kafka.admin")
    name = "sasl.kerberos.min.time.before.relogin"
    with running_broker() as broker:
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        entry = admin.ConfigEntry(name, "58000", incremental_operation=admin.AlterConfigOpType.SET)
        resource = admin.ConfigResource(admin.ResourceType.BROKER, "1", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(LONG)
        found = client.describe_configs([resource])[resource].result(LONG)[name]
        assert (found.value, found.is_read_only) == ("58000", False)
