"""A thousand clients that begin to shake hands and then say nothing more: others are let in, and their time ends."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import Client, Node, running_node
from tests.node.tls_harness import AUTHORITY, properties
from tests.patience import until

pytest.importorskip("cryptography")

CLIENTS = 1000
LONG_SECONDS = 300.0
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

Begin = Callable[[trio.SocketStream], Awaitable[None]]


async def nothing(stream: trio.SocketStream) -> None:
    """Connect, and no more."""


async def half_a_hello(stream: trio.SocketStream) -> None:
    """Half a record of TLS."""
    await stream.send_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


async def half_a_token(stream: trio.SocketStream) -> None:
    """A mechanism that is agreed on, and half a frame."""
    await Client(stream).ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await stream.send_all(b"\0\0\1\0\0\x24")


async def has_ended(stream: trio.SocketStream) -> bool:
    """Wait until the node closes the connection; it may do so before it has read all that came (RST)."""
    try:
        return await stream.receive_some(100) == b""
    except trio.BrokenResourceError:
        return True


async def by_tls(node: Node) -> Client:
    """A client that shakes hands as it should."""
    plain = await trio.open_tcp_stream(*node.broker.ports["CLIENTS"])
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    stream: Any = trio.SSLStream(plain, context, server_hostname="localhost")
    await stream.do_handshake()
    return Client(stream)


async def by_sasl(node: Node) -> Client:
    """A client that logs in."""
    client = Client(await trio.open_tcp_stream(*node.broker.ports["CLIENTS"]))
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    assert answer.error_code == 0
    return client


@pytest.mark.parametrize(
    ("protocol", "begin", "connect"),
    [
        pytest.param("SSL", nothing, by_tls, marks=pytest.mark.everything),
        ("SSL", half_a_hello, by_tls),
        ("SASL_PLAINTEXT", half_a_token, by_sasl),
    ],
)
def test_a_thousand_half_handshakes_keep_nobody_out_and_end_in_time(
    tmp_path: Path, protocol: str, begin: Begin, connect: Callable[[Node], Awaitable[Client]]
) -> None:
    given = properties() | {
        "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="alice" password="secret" user_alice="secret";'
        ),
    }
    del given["security.inter.broker.protocol"]
    clock = trio.testing.MockClock(rate=1.0)

    async def test() -> None:
        async with running_node(tmp_path, None, **given) as node:
            server = next(server for server in node.broker.listeners if server.name == "CLIENTS")
            own = server.quota.total
            # A machine that takes long to open a thousand connections ends none of them before the others are there.
            server.quota.limits = server.quota.limits._replace(handshake=LONG_SECONDS)
            half = [await trio.open_tcp_stream(*node.broker.ports["CLIENTS"]) for _ in range(CLIENTS)]
            for stream in half:
                await begin(stream)
            await until(lambda: server.quota.total - own >= CLIENTS)
            client = await connect(node)
            answer = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            assert answer.api_keys, "an ordinary client is let in, and served"
            assert server.quota.total - own == CLIENTS + 1, "while all of them wait"

            clock.jump(LONG_SECONDS)
            for stream in half:
                assert await has_ended(stream)
                await stream.aclose()
            assert server.quota.total - own == 1
            answer = await client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            assert answer.api_keys, "who is in stays in"

    trio.run(test, clock=clock)


async def test_who_is_not_let_in_yet_makes_room_before_who_is_silent(tmp_path: Path) -> None:
    """(KIP-402) A client that has logged in keeps its connection while brokers come in place of half handshakes."""
    given = {
        "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
        "max.connections": "3",
    }
    api_versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    async with running_node(tmp_path, **given) as node:
        [server] = [listener for listener in node.broker.listeners if listener.name == "CLIENTS"]
        logged_in = await by_sasl(node)
        server.sweep(trio.current_time())  # it has been silent since
        half = []
        for _ in range(2):
            half.append(await trio.open_tcp_stream(*node.broker.ports["CLIENTS"]))
            await half_a_token(half[-1])
        brokers = []
        for stream in half:
            brokers.append(await node.connect("PLAINTEXT"))
            assert (await brokers[-1].ask(api_versions, 3)).api_keys
            assert await has_ended(stream), "the first that came goes first"
        assert (await logged_in.ask(api_versions, 3)).api_keys
        assert server.quota.total == 3
        brokers.append(await node.connect("PLAINTEXT"))
        assert (await brokers[-1].ask(api_versions, 3)).api_keys
        assert await logged_in.closed(), "when there is nobody else"
