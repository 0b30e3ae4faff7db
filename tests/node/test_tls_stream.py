"""The stream with TLS over a pair of sockets: pieces, slow readers, bytes that the system does not see, ends."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.config.security import SecurityValues
from kbroker.env import EpollPoller, RealStream
from kbroker.node.tls_stream import PIECE, RECORD, PendingPoller, TlsStream
from kbroker.security.tls.authority import Authority
from kbroker.security.tls.contexts import client_context, server_context

AUTHORITY = Authority.create()
NODE = AUTHORITY.issue("CN=localhost", ["localhost"])
SERVER = server_context(
    SecurityValues({"ssl.keystore.key": NODE.key_pem(), "ssl.keystore.certificate.chain": NODE.certificate_pem})
)
CLIENT = client_context(SecurityValues({"ssl.truststore.certificates": AUTHORITY.certificate_pem}))
SMALL_BUFFER = 8192


def pair() -> tuple[TlsStream, ssl.SSLSocket]:
    """The stream before its handshake, and a client whose calls do not wait."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
    theirs.setblocking(False)
    stream = TlsStream(RealStream(ours, use_sendfile=True), SERVER, bytearray(PIECE))
    client = CLIENT.wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
    return stream, client


async def call(client: ssl.SSLSocket, step: Callable[[], Any]) -> Any:
    """A client's call, repeated until it need not wait."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(client)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(client)


def with_pair(test: Callable[[TlsStream, ssl.SSLSocket], Awaitable[None]]) -> None:
    """Run a test with both ends connected."""

    async def main() -> None:
        stream, client = pair()
        with trio.fail_after(20), client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.handshake)
                await call(client, client.do_handshake)
            await test(stream, client)
            stream.close()

    trio.run(main)


async def read(client: ssl.SSLSocket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        data = await call(client, lambda: client.recv(1 << 16))
        if not data:
            break
        received += data
    return bytes(received)


async def write_all(stream: TlsStream, write: Callable[[int], int], size: int) -> int:
    """Offer ``size`` bytes from each position on until all are taken; how often the system took none."""
    position = waited = 0
    while position < size:
        try:
            position += write(position)
        except BlockingIOError:
            waited += 1
            assert stream._stuck is not None and len(stream._stuck) <= PIECE
            await stream.wait_writable()
    return waited


@pytest.mark.parametrize("how", ["send", "sendmsg", "sendfile", "send_more"])
def test_a_slow_reader_gets_every_byte_and_costs_one_piece(tmp_path: Path, how: str) -> None:
    size = 3 * PIECE + 12345
    data = os.urandom(size)
    (tmp_path / "log").write_bytes(data)
    view = memoryview(data)
    header = b"header"

    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        with open(tmp_path / "log", "rb") as log:
            ways: dict[str, Callable[[int], int]] = {
                "send": lambda at: stream.send(view[at:]),
                "sendmsg": lambda at: stream.sendmsg(
                    [view[at : at + 100], view[at + 100 : at + 5000], view[at + 5000 :]]
                ),
                "sendfile": lambda at: stream.sendfile(log.fileno(), at, size - at),
            }
            ways["send_more"] = ways["sendfile"]
            received = b""

            async def reads() -> None:
                nonlocal received
                received = await read(client, size + (len(header) if how == "send_more" else 0))

            if how == "send_more":
                assert stream.send_more([header[:2], header[2:]]) == len(header)
            waited = 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reads)
                waited = await write_all(stream, ways[how], size)
            assert received == (header if how == "send_more" else b"") + data
            assert waited, "the reader was not slow"

    with_pair(test)


@pytest.mark.parametrize("has_preadv", [True, False])
def test_a_reply_before_file_bytes_shares_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_preadv: bool
) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    (tmp_path / "log").write_bytes(b"records")

    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        assert stream.send_more([b"he", b"ad"]) == 4
        with open(tmp_path / "log", "rb") as log:
            assert stream.sendfile(log.fileno(), 0, 7) == 7
            assert await call(client, lambda: client.recv(100)) == b"headrecords"
            assert stream.sendfile(log.fileno(), 7, 7) == 0, "the file has ended"
        with pytest.raises(BlockingIOError):
            stream.send_more([b"x" * (2 * RECORD)])  # too much to hold back

    with_pair(test)


def test_small_writes_are_one_record() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        assert stream.sendmsg([b"a", bytearray(b"b"), memoryview(b"c")]) == 3
        assert await call(client, lambda: client.recv(100)) == b"abc"
        with pytest.raises(BlockingIOError):
            stream.recv_into(bytearray(1))

    with_pair(test)


def test_a_read_takes_all_records_that_fit() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        data = os.urandom(3 * RECORD)

        async def sends() -> None:
            for at in range(0, len(data), RECORD):
                await call(client, lambda at=at: client.send(data[at : at + RECORD]))  # type: ignore[misc]

        room = bytearray(len(data))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sends)
            received = most = 0
            while received < len(data):
                await stream.wait_readable()
                with suppress(BlockingIOError):
                    count = stream.recv_into(memoryview(room)[received:])
                    received += count
                    most = max(most, count)
        assert room == data
        assert not stream.has_pending

    with_pair(test)


def test_bytes_that_the_system_does_not_see_are_called_for() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        await call(client, lambda: client.send(b"0123456789"))
        await stream.wait_readable()
        room = bytearray(4)
        assert stream.recv_into(room) == 4 and stream.has_pending
        await stream.wait_readable()  # at once
        poller = PendingPoller(EpollPoller())
        received = bytes(room)
        done = trio.Event()

        def on_readable() -> None:
            nonlocal received
            count = stream.recv_into(room)
            received += room[:count]
            if len(received) == 20:
                done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            poller.register(stream, on_readable)
            while len(received) < 10:
                await trio.lowlevel.checkpoint()
            await call(client, lambda: client.send(b"abcdefghij"))  # and what comes by the system, too
            await done.wait()
            poller.unregister(stream)
            nursery.cancel_scope.cancel()
        assert received == b"0123456789abcdefghij"
        assert not stream.has_pending

    with_pair(test)


def test_a_stream_that_is_not_watched_any_more_is_not_called() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        await call(client, lambda: client.send(b"0123456789"))
        poller = PendingPoller(EpollPoller())
        called = trio.Event()

        def on_readable() -> None:
            assert not called.is_set()
            stream.recv_into(bytearray(4))
            poller.unregister(stream)
            called.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            poller.register(stream, on_readable)
            await called.wait()
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert stream.has_pending

    with_pair(test)


@pytest.mark.parametrize("says_so", [True, False])
def test_an_end_is_told_again_and_again(says_so: bool) -> None:
    """By close_notify the connection stays open, and the system tells of nothing."""

    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        await call(client, lambda: client.send(b"last"))
        if says_so:
            with suppress(ssl.SSLWantReadError):
                client.unwrap()
        else:
            client.shutdown(socket.SHUT_RDWR)
        room = bytearray(100)
        assert stream.recv_into(room) == 4
        assert [stream.recv_into(room), stream.recv_into(room)] == [0, 0]
        assert stream.has_pending
        await stream.wait_readable()

    with_pair(test)


def test_closing_tells_the_other_side() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        client.suppress_ragged_eofs = False
        stream.close()
        stream.close()
        assert stream.fileno() == -1
        assert await call(client, lambda: client.recv(1)) == b""

    with_pair(test)


def test_a_peer_that_is_gone_is_an_error() -> None:
    async def test(stream: TlsStream, client: ssl.SSLSocket) -> None:
        client.close()
        with pytest.raises(OSError) as caught:
            for _ in range(100):
                stream.send(b"x" * 1000)
        assert not isinstance(caught.value, BlockingIOError)

    with_pair(test)


def test_a_peer_that_is_gone_before_the_handshake_is_an_error() -> None:
    async def main() -> None:
        stream, client = pair()
        client.close()
        with pytest.raises(OSError):
            await stream.handshake()
        stream.close()
        assert stream.fileno() == -1

    trio.run(main)


def test_a_name_that_is_none_is_an_error() -> None:
    async def main() -> None:
        for host in ("", ".x", "a" * 70 + ".example"):
            ours, theirs = socket.socketpair()
            with theirs:
                stream = RealStream(ours, use_sendfile=True)
                with pytest.raises(OSError):
                    TlsStream(stream, CLIENT, bytearray(PIECE), server_hostname=host)
                stream.close()

    trio.run(main)
