"""A listener with SASL, by raw frames: what may come before what, both handshakes, limits, sessions that end.

Answers and texts are those of Apache Kafka 4.3.1 to the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode as E
from kbroker.errors import FatalError
from kbroker.node.security.sasl.admission import _Keeper
from kbroker.node.security.security import NodeSecurity
from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.conversation import OfferedMechanism, SaslConversation
from kbroker.security.sasl.plain import PasswordTable, PlainServer
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.wire.headers import encode_request_header
from kbroker.wire.messages import scram_credentials as alter
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest
from kbroker.wire.primitives import encode_uvarint
from tests.node.node_harness import Client, Node, configuration, running_node

SECRETS = ("alice-secret", "broker-secret", "carol-secret", "wrong-secret")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_LINE = (
    f'{PLAIN_MODULE} required username="broker" password="broker-secret"'
    ' user_broker="broker-secret" user_alice="alice-secret";'
)
LISTENER = "listener.name.plaintext"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": PLAIN_LINE,
    "connection.failed.authentication.delay.ms": "0",
}
ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0wrong-secret"


@asynccontextmanager
async def sasl_node(path: Path, caplog: pytest.LogCaptureFixture | None = None, /, **more: str) -> AsyncIterator[Node]:
    """A node with a SASL listener; no secret gets into its log."""
    with caplog.at_level(logging.DEBUG, "kbroker") if caplog else nullcontext():
        async with running_node(path, **{**PROPERTIES, **more}) as node:
            yield node
    if caplog:
        assert caplog.records, "the node says something"
        for secret in SECRETS:
            assert secret not in caplog.text


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


async def logged_in(node: Node, token: bytes = ALICE) -> Client:
    client = await node.connect()
    await handshake(client)
    assert (await authenticate(client, token)).error_code == 0
    return client


async def send_bare(client: Client, token: bytes) -> bytes:
    """Send a token without a header; what comes back, with its size, and nothing at the connection's end."""
    await client.stream.send_all(len(token).to_bytes(4, "big") + token)
    return bytes(await client.stream.receive_some(1000))


async def test_the_handshake_of_today(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_node(tmp_path, caplog) as node:
        client = await node.connect()
        versions = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        assert {17, 36, 50, 51} <= {entry.api_key for entry in versions.api_keys}
        response = await handshake(client)
        assert (response.error_code, response.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        for version in (0, 1, 2):
            another = await node.connect()
            await handshake(another)
            response = await authenticate(another, ALICE, version)
            assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
            assert (await another.ask(MetadataRequest(topics=[]), 12)).brokers
        # Where sessions do not end, there is nothing to be renewed.
        assert (await handshake(another)).error_code == E.ILLEGAL_SASL_STATE
        refused = await authenticate(another, ALICE)
        assert refused.error_code == E.ILLEGAL_SASL_STATE
        assert refused.error_message == "SaslAuthenticate request received after successful authentication"


async def test_the_handshake_of_old_clients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_node(tmp_path, caplog) as node:
        client = await node.connect()
        assert (await handshake(client, version=0)).error_code == 0
        assert await send_bare(client, ALICE) == bytes(4)
        assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers
        client = await node.connect()
        await handshake(client, version=0)
        assert await send_bare(client, WRONG) == b""

        side = client_mechanism(
            "SCRAM-SHA-512", f'{SCRAM_MODULE} required username="carol" password="carol-secret";', {}
        ).make("localhost")
        client = await node.connect()
        await handshake(client, side.mechanism, version=0)
        challenge = await send_bare(client, side.first())
        assert int.from_bytes(challenge[:4], "big") == len(challenge) - 4
        assert await send_bare(client, side.respond(challenge[4:])) == b"", "there is no such user"


async def test_who_has_a_scram_credential_cannot_be_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_node(tmp_path, caplog) as node:
        admin = await logged_in(node)
        salted = ScramMechanism.SCRAM_SHA_256.salted_password("carol-secret", b"salt", 8192)
        upsertion = alter.ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=8192, salt=b"salt", salted_password=salted
        )
        response = await admin.ask(alter.AlterUserScramCredentialsRequest(upsertions=[upsertion]))
        assert [(result.user, result.error_code) for result in response.results] == [("carol", 0)]
        for name in ("carol", "nobody"):
            client = await node.connect()
            await handshake(client, "SCRAM-SHA-256")
            challenge = bytes((await authenticate(client, f"n,,n={name},r=abc".encode())).auth_bytes)
            _, salt, iterations = challenge.decode().split(",")
            assert (len(salt), iterations) == (len("s=c2FsdA=="), "i=8192")


async def test_what_comes_before_it_is_due_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sasl_node(tmp_path, caplog) as node:
        versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        for early in (MetadataRequest(topics=[]), SaslAuthenticateRequest(auth_bytes=ALICE)):
            client = await node.connect()
            with pytest.raises(EOFError):
                await client.ask(early, 2)
        client = await node.connect()
        await client.ask(versions, 3)
        with pytest.raises(EOFError):
            await client.ask(versions, 3)

        client = await node.connect()
        response = await client.ask(ApiVersionsRequest(client_software_name=""), 3)
        assert response.error_code == E.INVALID_REQUEST
        assert (await client.ask(versions, 3)).error_code == 0
        assert (await handshake(client)).error_code == 0

        client = await node.connect()
        await client.stream.send_all(b"\0\0\0\x0b" + encode_request_header(18, 99, 5, None)[:11])
        assert (await client.frame())[:6] == b"\0\0\0\5" + E.UNSUPPORTED_VERSION.to_bytes(2, "big")
        assert (await handshake(client)).error_code == 0


async def test_between_handshake_and_token_nothing_else_is_answered(tmp_path: Path) -> None:
    async with sasl_node(tmp_path) as node:
        for request, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
        ):
            client = await node.connect()
            await handshake(client)
            assert (await client.ask(request, version)).error_code == E.ILLEGAL_SASL_STATE
            assert await client.closed()
        client = await node.connect()
        await handshake(client)
        response = await client.ask(MetadataRequest(topics=None), 12)
        assert (response.brokers, response.topics, response.cluster_id) == ([], [], None)
        assert await client.closed()


async def test_a_wrong_password_is_told_and_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_node(tmp_path, caplog) as node:
        noise = await node.connect()
        await noise.stream.send_all(b"\xff\xff\xff\xff")
        assert await noise.closed()
        for token in (WRONG, b"\0nobody\0wrong-secret"):
            client = await node.connect()
            await handshake(client)
            response = await authenticate(client, token)
            assert response.error_code == E.SASL_AUTHENTICATION_FAILED
            assert response.error_message == "Authentication failed: Invalid username or password"
            assert await client.closed()
        assert "refused a connection from 127.0.0.1: Authentication failed" in caplog.text, "whatever came before"


async def test_frames_that_are_too_large_or_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_node(tmp_path, caplog, **{"sasl.server.max.receive.size": "1000"}) as node:
        for data in (
            (1001).to_bytes(4, "big"),
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0\0\0\x02\0\x12",
            b"\0\0\0\x0a\0\x11\0\1\0\0\0\1\x7f\xff",
            b"\0\0\0\x0c\0\x11\0\1\0\0\0\1\xff\xff\x7f\xff",
        ):
            client = await node.connect()
            await client.stream.send_all(data)
            assert await client.closed(), data
        client = await node.connect()
        await handshake(client)
        await client.stream.send_all((1001).to_bytes(4, "big") + bytes(1001))
        assert await client.closed()
        client = await node.connect()  # in pieces, and with the next request right behind
        token = encode_request_header(36, 1, 7, "x") + len(ALICE).to_bytes(4, "big") + ALICE
        await handshake(client)
        after = encode_request_header(3, 1, 8, "x") + bytes(4)
        for byte in len(token).to_bytes(4, "big") + token:
            await client.stream.send_all(bytes([byte]))
        await client.stream.send_all(len(after).to_bytes(4, "big") + after)
        assert (await client.frame())[:6] == b"\0\0\0\7\0\0"
        assert (await client.frame())[:4] == b"\0\0\0\x08"
        assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("where", ["header", "body"])
@pytest.mark.parametrize("count", [64, 10_001])
async def test_a_stranger_sends_no_more_tagged_fields_than_are_read(tmp_path: Path, where: str, count: int) -> None:
    """The limits of Kafka 4.4's readers (10,000 tagged fields, a million elements) hold before authentication, and
    narrower ones (`tests/wire/test_hostile.py`)."""
    tags = encode_uvarint(count) + b"".join(encode_uvarint(100 + tag) + b"\0" for tag in range(count))
    header = encode_request_header(ApiVersionsRequest.api_key, 3, 1, "c")
    assert header.endswith(b"\0")
    body = b"\2a\0021"
    frame = header[:-1] + tags + body + b"\0" if where == "header" else header + body + tags

    async with sasl_node(tmp_path) as node:
        client = await node.connect()
        await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
        if count == 64:
            assert (await client.frame())[:4] == b"\0\0\0\1"
        else:
            assert await client.closed()


async def test_half_an_authentication_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with sasl_node(tmp_path) as node:
        for server in node.broker.listeners:
            server.quota.limits = type(server.quota.limits)(100, 100, {}, 600, handshake=0.5)
        silent, half, begun = [await node.connect() for _ in range(3)]
        await half.stream.send_all(b"\0\0")
        await handshake(begun)
        for client in (silent, half, begun):
            assert await client.closed()


async def test_a_renewal_that_fails_before_the_session_is_looked_after_ends_it_as_well(tmp_path: Path) -> None:
    more = {f"{LISTENER}.plain.connections.max.reauth.ms": "60000", "connection.failed.authentication.delay.ms": "500"}
    async with sasl_node(tmp_path, **more) as node:
        client = await node.connect()
        await handshake(client)
        client.send_now(SaslAuthenticateRequest(auth_bytes=ALICE), 2)  # all of it is there before the node has a turn
        client.send_now(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send_now(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        client.send_now(ApiVersionsRequest(client_software_name="it", client_software_version="1"), 3)
        errors = [(await client.receive())[1].error_code for _ in range(3)]
        assert errors == [0, 0, E.SASL_AUTHENTICATION_FAILED]
        with pytest.raises(EOFError):  # and the request behind it is not answered
            await client.receive()


BUILDER = """
def build(peer):
    return "Team:red" if peer.principal.name == "alice" else peer.principal
"""


async def test_a_session_that_is_renewed_keeps_the_principal_that_a_rule_has_built(tmp_path: Path) -> None:
    """Alice of the mechanism may do everything; on this listener she is another, and stays so."""
    file = tmp_path / "builder.py"
    file.write_text(BUILDER)

    more = {
        "principal.builder.class": f"python:{file}:build",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:broker;User:ANONYMOUS",
        f"{LISTENER}.plain.connections.max.reauth.ms": "60000",
    }
    async with sasl_node(tmp_path, **more) as node:
        client = await logged_in(node)
        for is_again in (False, True):
            if is_again:
                assert (await handshake(client)).error_code == 0
                assert (await authenticate(client, ALICE)).error_code == 0
            asked = await client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
            assert asked.error_code == E.CLUSTER_AUTHORIZATION_FAILED


async def test_a_session_that_has_ended_serves_nothing_but_its_renewal(tmp_path: Path) -> None:
    async with sasl_node(tmp_path, **{"connections.max.reauth.ms": "1"}) as node:
        client = await logged_in(node)
        with pytest.raises(EOFError):
            while True:  # until the millisecond is over
                await client.ask(MetadataRequest(topics=[]), 12)
        client = await logged_in(node)
        response = await handshake(client)
        assert response.error_code == 0
        assert (await authenticate(client, ALICE)).error_code == 0


class Served:
    """Takes the place of a connection: what it is told to serve, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[float, tuple[int, ...] | None]] = []
        self.when_closed: list[Any] = []
        self.closed = False
        self.peer = "peer"
        self.is_ending = False

    def end(self) -> None:
        self.is_ending = True

    def restrict(self, api_keys: Any) -> None:
        self.told.append((trio.current_time(), api_keys))


@pytest.mark.parametrize("password", ["alice-secret", "wrong-secret"])
async def test_a_session_ends_and_is_renewed_in_time(autojump_clock: trio.testing.MockClock, password: str) -> None:
    users = PasswordTable({"alice": "alice-secret"})
    mechanisms = {"PLAIN": OfferedMechanism(lambda: PlainServer(users.check), 10_000)}
    start = trio.current_time()
    session = SaslConversation(mechanisms, trio.current_time, lambda: 0)
    session.handshake("PLAIN")
    await session.authenticate(ALICE)
    connection: Any = Served()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_Keeper(session, 2.0, connection).keep)
        await trio.sleep(15)
        session.handshake("PLAIN")
        await session.authenticate(f"\0alice\0{password}".encode())
        await trio.sleep(20)
        told = [(round(at - start, 3), keys) for at, keys in connection.told]
        if password == "alice-secret":
            assert told == [(10.0, (17, 36)), (15.0, None), (25.0, (17, 36))]
            assert not connection.is_ending
        else:
            assert told == [(10.0, (17, 36)), (15.0, ())]
            assert connection.is_ending
        for callback in connection.when_closed:
            callback()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "plaintext.gssapi.sasl.jaas.config is not set: .*sasl.enabled.mechanisms is GSSAPI unless it is set",
        ),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER needs the address of the token"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "it has values for OAUTHBEARER alone"),
        ({"sasl.enabled.mechanisms": ""}, "is empty"),
        ({f"{LISTENER}.plain.sasl.jaas.config": "wrong-secret"}, "not one of the login modules"),
        ({f"{LISTENER}.plain.sasl.jaas.config": f"{SCRAM_MODULE} required;"}, "does not serve SASL mechanism PLAIN"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "plaintext.gssapi.sasl.jaas.config is not set: this node"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config is not set"),
        (
            {f"{LISTENER}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_a="wrong-secret";'},
            "needs the option username",
        ),
    ],
)
def test_what_cannot_be_followed_keeps_a_node_from_starting(tmp_path: Path, more: dict[str, str], text: str) -> None:
    config = configuration(tmp_path, **(PROPERTIES | more))
    with pytest.raises(FatalError, match=text) as caught:
        NodeSecurity(config, RealEnv())
    assert "wrong-secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_line_without_listener_and_mechanism_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configuration(tmp_path, **PROPERTIES, **{"sasl.jaas.config": PLAIN_LINE})
    NodeSecurity(config, RealEnv())
    assert caplog.text.count("sasl.jaas.config has no effect") == 1
    for text in (caplog.text, repr(config)):
        assert not any(secret in text for secret in SECRETS)
