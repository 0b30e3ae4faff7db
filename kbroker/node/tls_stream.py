"""A connection with TLS: ``env.Stream`` over a socket of Python's ``ssl`` that never blocks.

Two things are otherwise than with TCP. Bytes may be decrypted already and wait inside the TLS layer, where the system
does not see them: ``has_pending`` says so, and :class:`PendingPoller` calls for them. And what was encrypted and not
taken by the system is to be offered again as it was: the stream keeps its own copy of one piece for that.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from kbroker.env import Buffer, RealStream

if TYPE_CHECKING:
    from kbroker.env import Poller, Stream
    from kbroker.round import Round
    from kbroker.timing import Deadline

RECORD = 16 * 1024
"""The most bytes that one record of TLS carries."""

LARGE_ROOM = 64 * 1024
"""Room for more bytes is for a large frame, which may come in many small records."""

PIECE = 128 * 1024
"""The most bytes that are encrypted at a time, and so the most that a stream keeps for a slow reader."""

_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsStream:
    """One end of a TLS connection, with the handshake still to come."""

    __slots__ = ("_held", "_scratch", "_sock", "_stuck", "_stuck_size", "has_pending", "local", "peer")

    def __init__(
        self,
        stream: Stream,
        context: ssl.SSLContext,
        scratch: bytearray,
        *,
        server_hostname: str | None = None,
    ) -> None:
        """Takes the socket of ``stream``, which is not to be used any more; a server if there is no name.

        ``scratch`` has :data:`PIECE` bytes, and may be shared by the streams of one event loop. ``OSError`` if the
        connection is gone or is none of the machine's.
        """
        if not isinstance(stream, RealStream):
            raise OSError("TLS needs a connection of this machine")
        self.peer = stream.peer
        self.local = stream.local
        self._scratch = memoryview(scratch)
        self._held = b""
        """Bytes that were taken and go into one record with those that follow."""
        self._stuck: bytes | None = None
        """A piece that the system has not taken in whole: nothing else can be written before."""
        self._stuck_size = 0
        """How many of its bytes the caller has not been told to be taken."""
        self.has_pending = False
        """Whether there is something to read that the system does not tell of: bytes, or the end."""
        try:
            self._sock = context.wrap_socket(
                stream.sock,
                server_side=server_hostname is None,
                server_hostname=server_hostname,
                do_handshake_on_connect=False,
            )
        except ssl.SSLError:
            raise
        except ValueError as error:
            raise OSError(str(error)) from error

    async def handshake(self) -> None:
        """Shake hands. ``OSError``, an ``ssl.SSLError`` among them, if that fails."""
        sock = self._sock
        while True:
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(sock)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(sock)
            except ssl.SSLError:
                raise  # one of them is a ValueError, too
            except ValueError as error:
                raise OSError(str(error)) from error  # the client was gone before

    def peer_certificate(self) -> bytes | None:
        """The other side's certificate in DER, which was checked; None if it showed none."""
        return self._sock.getpeercert(True)

    @property
    def version(self) -> str | None:
        """The version of TLS, as ``ssl.enabled.protocols`` names it."""
        return self._sock.version()

    @property
    def cipher(self) -> str | None:
        """The cipher suite, under OpenSSL's name."""
        found = self._sock.cipher()
        return None if found is None else found[0]

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._sock.fileno()

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        sock = self._sock
        try:
            received = sock.recv_into(buffer)
        except _WANTS:
            raise BlockingIOError from None
        if received == len(buffer):
            self.has_pending = sock.pending() > 0
        elif received == 0:
            self.has_pending = True
        elif received < RECORD // 2 and len(buffer) <= LARGE_ROOM:
            # Such a record is the last for now; if not, the system tells of the next.
            self.has_pending = False
        else:
            received += self._recv_more(memoryview(buffer)[received:])
        return received

    def _recv_more(self, room: memoryview) -> int:
        """Bytes of further records, as many as there are room and records. An end or an error is left for the next."""
        sock, size = self._sock, len(room)
        self.has_pending = False
        received = 0
        try:
            while received < size:
                count = sock.recv_into(room[received:])
                if not count:
                    self.has_pending = True
                    return received
                received += count
        except _WANTS:
            return received
        except OSError:
            self.has_pending = True
            return received
        self.has_pending = sock.pending() > 0
        return received

    # --- writing

    def send(self, data: Buffer) -> int:
        return self._send((data,))

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        return self._send(buffers)

    def send_more(self, buffers: Sequence[Buffer]) -> int:
        """Keeps the bytes for the record of what follows, if they are few."""
        if self._stuck is not None or self._held or sum(map(len, buffers)) > RECORD:
            return self._send(buffers)
        self._held = b"".join(buffers)
        return len(self._held)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        if self._stuck is not None:
            return self._send_again()
        held, room = len(self._held), self._scratch
        end = min(PIECE, held + length)
        room[:held] = self._held
        count = os.preadv(fd, [room[held:end]], position)
        return self._write(room[: held + count]) if count else 0

    def _send(self, buffers: Sequence[Buffer]) -> int:
        if self._stuck is not None:
            return self._send_again()
        first = buffers[0]
        if not self._held and (len(buffers) == 1 or len(first) >= PIECE):
            return self._write(first if len(first) <= PIECE else memoryview(first)[:PIECE])
        gathered: list[Buffer] = [self._held]
        size = len(self._held)
        for buffer in buffers:
            gathered.append(memoryview(buffer)[: PIECE - size])
            size += len(gathered[-1])
            if size == PIECE:
                break
        return self._write(b"".join(gathered))

    def _write(self, piece: Buffer) -> int:
        """Write a piece that begins with the bytes held back; how many it has besides."""
        size = len(piece) - len(self._held)
        try:
            self._sock.send(piece)
        except _WANTS:
            # Some of it may be on its way. The next attempt must be with the same bytes, and ends with all of them.
            self._stuck = bytes(piece)
            self._stuck_size = size
            self._held = b""
            raise BlockingIOError from None
        self._held = b""
        return size

    def _send_again(self) -> int:
        """Go on with what is stuck. The caller offers the same bytes again."""
        assert self._stuck is not None
        try:
            self._sock.send(self._stuck)
        except _WANTS:
            raise BlockingIOError from None
        self._stuck = None
        return self._stuck_size

    # --- waiting

    async def wait_readable(self) -> None:
        if self.has_pending:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._sock)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._sock)

    def close(self) -> None:
        sock = self._sock
        if sock.fileno() < 0:
            return
        trio.lowlevel.notify_closing(sock)
        if self._stuck is None:
            with suppress(OSError, ValueError):
                sock.unwrap()  # tells the other side that nothing was cut off; does not wait for its answer
        self._stuck = None
        sock.close()


class PendingPoller:
    """A poller of TLS streams: calls again for a stream that has bytes left which the system does not see."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self.round: Round = poller.round
        self._callbacks: dict[TlsStream, Callable[[], None]] = {}
        self._pending: set[TlsStream] = set()
        self._some = trio.Event()

    def register(self, stream: Any, callback: Callable[[], None]) -> None:
        def on_readable() -> None:
            callback()
            if stream.has_pending and self._callbacks.get(stream) is on_readable:
                self._call_again(stream)

        self._poller.register(stream, on_readable)
        self._callbacks[stream] = on_readable
        if stream.has_pending:
            self._call_again(stream)

    def unregister(self, stream: Any) -> None:
        self._callbacks.pop(stream, None)
        self._pending.discard(stream)
        self._poller.unregister(stream)

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        return self._poller.call_at(when, callback)

    def call_off(self, deadline: Deadline) -> None:
        self._poller.call_off(deadline)

    def _call_again(self, stream: TlsStream) -> None:
        self._pending.add(stream)
        self._some.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._poller.run)
            while True:
                await self._some.wait()
                self._some = trio.Event()
                await trio.lowlevel.checkpoint()  # the others' turn
                pending, self._pending = self._pending, set()
                self.round.is_crowded = False
                for stream in pending:
                    callback = self._callbacks.get(stream)
                    if callback is not None:
                        callback()
                self.round.end()
