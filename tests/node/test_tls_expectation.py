"""The rest of a large frame over TLS is told of when much of it is there; the end and what is slow are told of all the
same, and nothing that comes behind it is held back."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from kbroker.config.security import SecurityValues
from kbroker.node.security.tls_stream import EXPECTED, PIECE, TlsStream
from kbroker.runtime.env import RealEnv, RealStream
from kbroker.security.tls.contexts import client_context, server_context
from tests.node.node_harness import PATIENT, run, running_node
from tests.node.tls_harness import AUTHORITY, properties
from tests.patience import LONG, SHORT, until

NODE = AUTHORITY.issue("CN=localhost", ["localhost"])
SERVER = server_context(
    SecurityValues({"ssl.keystore.key": NODE.key_pem(), "ssl.keystore.certificate.chain": NODE.certificate_pem})
)
CLIENT = client_context(SecurityValues({"ssl.truststore.certificates": AUTHORITY.certificate_pem}))
RECORD = bytes(1000)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of so many bytes")


class Client:
    """The other end of a stream over TCP; blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = CLIENT.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.sock.sendall(self._outgoing.read())
                self._incoming.write(self.sock.recv(1 << 16))
        self.sock.sendall(self._outgoing.read())

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self.sock.sendall(self._outgoing.read())


async def connected() -> tuple[TlsStream, Client]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream, client = TlsStream(RealStream(ours, use_sendfile=True), SERVER, bytearray(PIECE)), Client(theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.handshake)
        await trio.to_thread.run_sync(client.handshake)
    return stream, client


async def is_told(stream: TlsStream, seconds: float = 0.05) -> bool:
    """Whether the system tells of something to read."""
    with trio.move_on_after(seconds) as scope:
        await stream.wait_readable()
    return not scope.cancelled_caught


def read(stream: TlsStream, size: int = 1 << 20) -> int:
    """Read the bytes that are there now, `size` at most, and return their number."""
    received = 0
    room = bytearray(size)
    with suppress(BlockingIOError):
        while received < size:
            received += stream.recv_into(room)
    return received


def test_the_rest_of_a_frame_is_told_of_when_much_of_it_is_there() -> None:
    async def main() -> None:
        stream, client = await connected()
        with client.sock:
            stream.expect(1 << 20)
            sent = 0
            while sent < EXPECTED - 10 * len(RECORD):
                client.send(RECORD)
                sent += len(RECORD)
            assert not await is_told(stream)
            while sent < EXPECTED + len(RECORD):
                client.send(RECORD)
                sent += len(RECORD)
            assert await is_told(stream, 60)
            received = 0
            while received < sent:  # the system tells of it before the last bytes have come
                assert await is_told(stream, 60)
                received += read(stream)
            assert received == sent
            client.send(b"x")  # the read was the end of it
            assert await is_told(stream, 60) and read(stream) == 1
            stream.close()

    trio.run(main)


@pytest.mark.parametrize("says_so", [True, False])
def test_an_end_within_a_frame_is_told_of(says_so: bool) -> None:
    async def main() -> None:
        stream, client = await connected()
        stream.expect(1 << 20)
        client.send(RECORD)
        if says_so:
            client.sock.shutdown(socket.SHUT_WR)
        else:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sock.close()
        assert await is_told(stream, 60)
        stream.close()
        client.sock.close()

    trio.run(main)


def test_no_more_is_waited_for_than_is_sure_to_come() -> None:
    """The system tells of all that is left of a frame, of any size."""

    async def main() -> None:
        stream, client = await connected()
        with client.sock:
            for size in (1, 20_000, 40_000, EXPECTED, EXPECTED + 17_000, 5 * EXPECTED):
                for first in (0, 1, size // 2, size - 1):
                    client.send(bytes(first)) if first else None
                    got = 0
                    while got < first:
                        assert await is_told(stream, 60)
                        got += read(stream)
                    stream.expect(size - got)
                    with trio.fail_after(SHORT):
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(trio.to_thread.run_sync, client.send, bytes(size - first))
                            while got < size:
                                await stream.wait_readable()
                                got += read(stream)
                                stream.expect(size - got)
            stream.close()

    trio.run(main)


def test_a_slow_client_is_looked_at_now_and_then(tmp_path: Path) -> None:
    """Some KB a second are enough, however much the system is to wait for."""
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem)
    given = {name.replace(".", "_"): value for name, value in properties().items()}
    given["listeners"] = "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    env = RealEnv(budgets=PATIENT._replace(sweep_seconds=10.0 * LONG))  # the housekeeper comes when it is called

    def connect(address: tuple[str, int]) -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection(address, LONG), server_hostname="localhost")

    async def test() -> None:
        async with running_node(tmp_path, env, **given) as node:

            def received() -> int:
                return sum(each.bytes_received for server in node.broker.listeners for each in server.connections)

            def swept(count: int) -> bool:
                if received() == count:
                    return True
                for server in node.broker.listeners:
                    server.sweep(trio.current_time())
                return False

            with await trio.to_thread.run_sync(connect, node.broker.ports["SSL"]) as client:
                frame = struct.pack(">ihhih", 1 << 20, 3, 9, 7, -1)
                client.sendall(frame + bytes(EXPECTED - len(frame)))
                await until(lambda: swept(EXPECTED))  # the first look may come before all of it
                client.sendall(bytes(5000))
                await trio.testing.wait_all_tasks_blocked()
                assert received() == EXPECTED  # nobody has looked
                await until(lambda: swept(EXPECTED + 5000))

    run(test)
