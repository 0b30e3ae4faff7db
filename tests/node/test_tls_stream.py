"""The stream with TLS over a pair of sockets: pieces, slow readers, bytes that the system does not see, ends."""

from __future__ import annotations

import _ssl
import ctypes
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.config.security import SecurityValues
from kbroker.node.security.handshake_thread import HandshakeThread
from kbroker.node.security.tls import PendingPoller
from kbroker.node.security.tls_stream import MAX_IDLE_BYTES, MORE, PIECE, RECORD, STEP, TlsStream
from kbroker.runtime.env import RealStream
from kbroker.runtime.epoll_poller import EpollPoller
from kbroker.security.tls.authority import Authority
from kbroker.security.tls.contexts import client_context, server_context
from tests.patience import LONG, SHORT

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
    theirs.setblocking(False)
    stream = TlsStream(RealStream(ours, use_sendfile=True), SERVER, bytearray(PIECE))
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
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


@asynccontextmanager
async def connected_pair() -> AsyncIterator[tuple[TlsStream, ssl.SSLSocket]]:
    stream, client = pair()
    with trio.fail_after(LONG), client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.handshake)
            await call(client, client.do_handshake)
        yield stream, client
        stream.close()


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
            assert stream._stuck is not None and len(stream._stuck) <= PIECE // 2
            await stream.wait_writable()
    return waited


@pytest.mark.parametrize("how", ["send", "sendmsg", "sendfile", "send_more"])
async def test_a_slow_reader_gets_every_byte_and_costs_one_piece(tmp_path: Path, how: str) -> None:
    size = 3 * PIECE + 12345
    data = os.urandom(size)
    (tmp_path / "log").write_bytes(data)
    view = memoryview(data)
    header = b"header"

    async with connected_pair() as (stream, client):
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


@pytest.mark.parametrize("has_preadv", [True, False])
async def test_a_reply_before_file_bytes_shares_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_preadv: bool
) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    (tmp_path / "log").write_bytes(b"records")

    async with connected_pair() as (stream, client):
        assert stream.send_more([b"he", b"ad"]) == 4
        with open(tmp_path / "log", "rb") as log:
            assert stream.sendfile(log.fileno(), 0, 7) == 7
            assert await call(client, lambda: client.recv(100)) == b"headrecords"
            assert stream.sendfile(log.fileno(), 7, 7) == 0, "the file has ended"
        with pytest.raises(BlockingIOError):
            stream.send_more([b"x" * (2 * RECORD)])  # too much to hold back


async def test_small_writes_are_one_record() -> None:
    async with connected_pair() as (stream, client):
        assert stream.sendmsg([b"a", bytearray(b"b"), memoryview(b"c")]) == 3
        assert await call(client, lambda: client.recv(100)) == b"abc"
        with pytest.raises(BlockingIOError):
            stream.recv_into(bytearray(1))


async def test_a_read_takes_all_records_that_fit() -> None:
    async with connected_pair() as (stream, client):
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


async def test_bytes_that_the_system_does_not_see_are_called_for() -> None:
    async with connected_pair() as (stream, client):
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


async def test_a_stream_that_is_not_watched_any_more_is_not_called() -> None:
    async with connected_pair() as (stream, client):
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


@pytest.mark.parametrize("says_so", [True, False])
async def test_an_end_is_told_again_and_again(says_so: bool) -> None:
    """By close_notify the connection stays open, and the system tells of nothing."""

    async with connected_pair() as (stream, client):
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


async def test_closing_tells_the_other_side() -> None:
    async with connected_pair() as (stream, client):
        client.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # typeshed does not have it
        stream.close()
        stream.close()
        assert stream.fileno() == -1
        assert await call(client, lambda: client.recv(1)) == b""


async def test_a_peer_that_is_gone_is_an_error() -> None:
    async with connected_pair() as (stream, client):
        client.close()
        with pytest.raises(OSError) as caught:
            for _ in range(100):
                stream.send(b"x" * 1000)
        assert not isinstance(caught.value, BlockingIOError)


async def test_a_peer_that_is_gone_before_the_handshake_is_an_error() -> None:
    stream, client = pair()
    client.close()
    with pytest.raises(OSError):
        await stream.handshake()
    stream.close()
    assert stream.fileno() == -1


async def test_a_name_that_is_none_is_an_error() -> None:
    for host in ("", ".x", "a" * 70 + ".example"):
        ours, theirs = socket.socketpair()
        with theirs:
            stream = RealStream(ours, use_sendfile=True)
            with pytest.raises(OSError):
                TlsStream(stream, CLIENT, bytearray(PIECE), server_hostname=host)
            stream.close()


class KeyUpdates:
    """A client of TLS 1.3 in memory that updates its keys, which Python's ``ssl`` has no call for."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = CLIENT.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self._library = ctypes.CDLL(_ssl.__file__)
        self._library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
        # CPython's object: its header, the socket, then OpenSSL's connection.
        address = id(self.tls._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)  # type: ignore[attr-defined]
        self._connection = ctypes.c_void_p.from_address(address)

    async def handshake(self, sock: socket.socket) -> None:
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                sock.send(self.outgoing.read())
                await trio.lowlevel.wait_readable(sock)
                self.incoming.write(sock.recv(1 << 16))
            finally:
                if self.outgoing.pending:
                    sock.send(self.outgoing.read())

    def made(self, count: int, *, asks: bool = False) -> bytes:
        """Updates as they go over the wire; each ``asks`` for one of the other side."""
        for _ in range(count):
            assert self._library.SSL_key_update(self._connection, int(asks)) == 1
            assert self._library.SSL_do_handshake(self._connection) == 1
        return self.outgoing.read()

    def data(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()


def with_updates(test: Callable[[TlsStream, socket.socket, KeyUpdates], None]) -> None:
    """Run a test with a client that updates its keys; the client's socket is large enough for what it sends."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.setblocking(False)
        stream = TlsStream(RealStream(ours, use_sendfile=True), SERVER, bytearray(PIECE))
        client = KeyUpdates()
        with trio.fail_after(LONG), theirs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.handshake)
                await client.handshake(theirs)
            test(stream, theirs, client)
            stream.close()

    trio.run(main)


needs_openssl = pytest.mark.skipif(
    not ssl.HAS_TLSv1_3 or not hasattr(_ssl, "__file__"), reason="OpenSSL cannot be called here"
)


def waiting(stream: TlsStream) -> int:
    """Count the bytes that the system holds for a stream."""
    with suppress(BlockingIOError):
        return len(stream._sock.recv(1 << 20, socket.MSG_PEEK))
    return 0


@needs_openssl
@pytest.mark.parametrize("between", [b"", b"x"])
def test_a_flood_of_key_updates_costs_a_bounded_time_and_the_connection(between: bytes) -> None:
    """One call takes no more than a piece, however much is there; data among the updates excuses little."""

    def test(stream: TlsStream, sock: socket.socket, client: KeyUpdates) -> None:
        flood = b"".join(client.made(100) + (client.data(between) if between else b"") for _ in range(40))
        assert sock.send(flood) == len(flood) > 3 * STEP
        left, data = len(flood), 0
        with pytest.raises(ConnectionAbortedError):
            while True:
                with suppress(BlockingIOError):
                    data += stream.recv_into(bytearray(100))
                before, left = left, waiting(stream)
                assert before - left <= STEP
        assert len(flood) - waiting(stream) <= MAX_IDLE_BYTES + 2 * STEP
        with pytest.raises(ConnectionAbortedError):
            stream.recv_into(bytearray(100))

    with_updates(test)


@needs_openssl
def test_a_flood_of_key_updates_in_a_large_frame_costs_one_longer_step_and_the_connection() -> None:
    def test(stream: TlsStream, sock: socket.socket, client: KeyUpdates) -> None:
        flood = client.data(b"x" * RECORD) + b"".join(client.made(100) for _ in range(70))
        assert sock.send(flood) == len(flood) > 2 * (STEP + MORE)
        assert stream.recv_into(bytearray(1 << 20)) == RECORD
        assert len(flood) - waiting(stream) <= STEP + MORE
        with pytest.raises(ConnectionAbortedError):
            stream.recv_into(bytearray(1 << 20))

    with_updates(test)


@needs_openssl
def test_a_client_may_update_its_keys_now_and_then() -> None:
    def test(stream: TlsStream, sock: socket.socket, client: KeyUpdates) -> None:
        room = bytearray(200)
        for _ in range(1500):
            sock.send(client.made(1, asks=True) + client.data(b"x" * 100))
            assert stream.recv_into(room) == 100
            stream.send(b"reply")
            client.incoming.write(sock.recv(1 << 16))
            assert client.tls.read(100) == b"reply"

    with_updates(test)


@needs_openssl
def test_a_client_that_does_not_read_the_answers_to_its_key_updates_is_let_go() -> None:
    def test(stream: TlsStream, sock: socket.socket, client: KeyUpdates) -> None:
        stream._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        with pytest.raises(ConnectionAbortedError, match="does not read"):
            for _ in range(10_000):
                sock.send(client.made(1, asks=True) + client.data(b"x" * 100))
                stream.recv_into(bytearray(200))

    with_updates(test)


@needs_openssl
def test_half_a_record_is_nothing_to_call_for() -> None:
    def test(stream: TlsStream, sock: socket.socket, client: KeyUpdates) -> None:
        whole, half = client.data(b"first"), client.data(b"second")
        sock.send(whole + half[:10])
        room = bytearray(100)
        assert stream.recv_into(room) == 5
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                stream.recv_into(room)
            assert not stream.has_pending
        sock.send(half[10:])
        assert stream.recv_into(room) == 6 and room.startswith(b"second")

    with_updates(test)


async def test_steps_of_handshakes_leave_the_event_loop_to_others() -> None:
    """A step that takes long holds up neither the loop nor, when it fails, anything but its own connection."""
    may_go_on = threading.Event()

    async def slowly(step: Callable[[], bool]) -> bool:
        def slow_step() -> bool:
            assert may_go_on.wait(SHORT)  # for what only the event loop can do
            return step()

        return await thread.run(slow_step)

    stream, client = pair()
    stranger, liar = pair()
    with trio.fail_after(LONG), client, liar:
        os.write(liar.fileno(), b"GET / HTTP/1.1\r\n\r\n")
        thread = HandshakeThread()
        failures: list[Exception] = []

        async def refused() -> None:
            try:
                await stranger.handshake_by(slowly)
            except ssl.SSLError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            nursery.start_soon(stream.handshake_by, slowly)
            nursery.start_soon(call, client, client.do_handshake)
            while not thread.waiting:
                await trio.lowlevel.checkpoint()
            may_go_on.set()
        assert len(failures) == 1
        client.send(b"hello")
        await stream.wait_readable()
        room = bytearray(10)
        assert stream.recv_into(room) == 5
        stream.close()
        stranger.close()
