"""The small HTTP server of a node: what strangers may ask of it, over real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kbroker.errors import FatalError
from kbroker.node.peers.http_server import Exchange, HttpServer
from kbroker.runtime.bound_ports import addresses_of, bind_all
from tests.patience import LONG


def serve(
    respond: Callable[[Exchange, str], Awaitable[None]], client: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    """Run a server, and a client of it until that ends."""

    async def run() -> None:
        server = HttpServer("test", ("127.0.0.1", 0), respond, stalled=0.2)
        await server.bind()
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.serve)
                async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                    await client(stream)
                nursery.cancel_scope.cancel()

    trio.run(run)


def test_a_reader_that_stands_still_makes_place() -> None:
    left = trio.Event()

    async def stream_forever(exchange: Exchange, target: str) -> None:
        exchange.has_no_end()
        try:
            await exchange.begin(200, "text/plain")
            while True:
                await exchange.send("x" * 100_000)
        finally:
            left.set()

    async def stalled(stream: trio.SocketStream) -> None:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await left.wait()

    serve(stream_forever, stalled)


def can_bind(host: str) -> bool:
    """Whether this machine has an address."""
    try:
        for sock in bind_all(host, addresses_of(host), 0):
            sock.close()
    except FatalError:
        return False
    return True


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_all_addresses_have_one_port(host: str) -> None:
    """The rule of clients' listeners; a machine without IPv6 has the other family alone."""

    async def hello(exchange: Exchange, target: str) -> None:
        await exchange.answer(200, "hello")

    async def run() -> None:
        server = HttpServer("test", (host, 0), hello)
        await server.bind()
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.serve)
                for address in ("127.0.0.1", *(["::1"] if can_bind("::1") else [])):
                    async with await trio.open_tcp_stream(address, server.port) as stream:
                        await stream.send_all(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
                        assert (await stream.receive_some(12)) == b"HTTP/1.1 200"
                nursery.cancel_scope.cancel()

    trio.run(run)
