"""A connection with TLS: ``env.Stream`` over a socket that never blocks, with OpenSSL between two buffers in memory.

OpenSSL is given a bounded number of bytes at a time. Left to read from a socket itself, it goes on for as long as the
other side sends what is not for the caller, as updates of keys are: one client could hold the event loop for ever.

Two things are otherwise than with TCP. Bytes may wait inside the TLS layer, where the system does not see them:
``has_pending`` says so, and :class:`~kbroker.node.security.tls.PendingPoller` calls for them. And what was
encrypted and not taken by the system is kept, and counts as taken only when the system has all of it.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from kbroker.runtime.env import Buffer, RealStream

if TYPE_CHECKING:
    from kbroker.runtime.env import Stream

RECORD = 16 * 1024
"""The most bytes that one record of TLS carries."""

LARGE_ROOM = 64 * 1024
"""Room for more bytes is for a large frame, which may come in many small records."""

PIECE = 128 * 1024
"""The most bytes that one call writes, and the size of the room for them."""

STEP = 32 * 1024
"""The most bytes that are first decrypted at a time."""

ENCRYPTED = 48 * 1024
"""The most bytes that are encrypted at a time: about the most that is kept for a slow reader."""

MORE = 64 * 1024
"""The most bytes that are decrypted at a time once there was data. With fewer, a large frame costs more."""

OVERHEAD = 100
"""A byte for the caller excuses so many bytes of ciphertext: more than any record around a single byte has."""

MAX_IDLE_BYTES = 32 * 1024
"""Ciphertext that no byte for the caller excuses: more than a whole record, and what a peer may send of TLS's own."""

EXPECTED = 128 * 1024
"""The most bytes that the system is to have before it tells of the rest of a large frame."""

LEAST_EXPECTED = 8 * 1024
"""Fewer bytes than these are not worth a call to the system."""

_HELD_BY_TLS = RECORD + 512
"""More bytes than OpenSSL may hold of a record that is not whole."""

_CAN_EXPECT = sys.platform == "linux"
"""Whether a socket's SO_RCVLOWAT holds for epoll, and data that the socket has no more room for is told of anyway."""


class TlsStream:
    """One end of a TLS connection, with the handshake still to come."""

    __slots__ = (
        "_decrypt",
        "_encrypt",
        "_held",
        "_idle",
        "_incoming",
        "_least",
        "_outgoing",
        "_scratch",
        "_sock",
        "_step",
        "_stuck",
        "_stuck_size",
        "_tls",
        "has_pending",
        "peer",
    )

    def __init__(
        self, stream: Stream, context: ssl.SSLContext, scratch: bytearray, *, server_hostname: str | None = None
    ) -> None:
        """Takes the socket of ``stream``, which is not to be used any more; a server if there is no name.

        ``scratch`` has :data:`PIECE` bytes, and may be shared by the streams of one event loop. ``OSError`` if the
        connection is gone or is none of the machine's.
        """
        if not isinstance(stream, RealStream):
            raise OSError("TLS needs a connection of this machine")
        self.peer = stream.peer
        self._scratch = memoryview(scratch)
        self._step = self._scratch[:STEP]
        self._held = b""
        """Bytes that were taken and go into one record with those that follow."""
        self._stuck: memoryview | None = None
        """Encrypted bytes that the system has not taken yet: nothing else can be sent before."""
        self._stuck_size = 0
        """The number of the caller's bytes that are in there. The caller has not been told that they were taken."""
        self.has_pending = False
        """Whether there may be something to read that the system does not tell of: bytes, or the end."""
        self._idle = 0
        """Bytes of ciphertext that were read, less those that the bytes for the caller excuse."""
        self._least = 1
        """The bytes that the system is to have before it tells of any."""
        self._sock = stream.sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
            )
        except ssl.SSLError:
            raise
        except ValueError as error:
            raise OSError(str(error)) from error
        # What ``SSLObject`` calls: a small request has each of these once, and a frame of 1 MB hundreds of times.
        connection: Any = getattr(self._tls, "_sslobj", self._tls)
        self._decrypt: Callable[[int, bytearray | memoryview], int] = connection.read
        self._encrypt: Callable[[Buffer], int] = connection.write

    async def handshake(self) -> None:
        """Shake hands. ``OSError``, an ``ssl.SSLError`` among them, if that fails."""
        while not self._handshake_step():
            await self._flush()
            await self._more()
        await self._flush()
        self.has_pending = self._incoming.pending > 0

    async def handshake_by(self, take_step: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        """Shake hands with a client, whose turn it is first; ``take_step`` calls each step. Errors as `handshake`."""
        try:
            self._feed(self._step)  # a client that had to wait until it was accepted has said hello by now
        except BlockingIOError:
            await self._more()
        while not await take_step(self._handshake_step):
            await self._flush()
            await self._more()
        await self._flush()
        self.has_pending = self._incoming.pending > 0

    async def _flush(self) -> None:
        """Give the system all that is encrypted."""
        while True:
            try:
                self._drain()
                return
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._sock)

    async def _more(self) -> None:
        """Wait for bytes of the other side, and take them."""
        await trio.lowlevel.wait_readable(self._sock)
        with suppress(BlockingIOError):
            self._feed(self._step)

    def _handshake_step(self) -> bool:
        """Go on as far as what has come allows; whether the handshake is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            with suppress(OSError):
                self._drain()  # the alert
            raise
        return True

    def peer_certificate(self) -> bytes | None:
        """The other side's certificate in DER, which was checked; None if it showed none."""
        return self._tls.getpeercert(True)

    @property
    def version(self) -> str | None:
        """The version of TLS, as ``ssl.enabled.protocols`` names it."""
        return self._tls.version()

    @property
    def cipher(self) -> str | None:
        """The cipher suite, under OpenSSL's name."""
        found = self._tls.cipher()
        return None if found is None else found[0]

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._sock.fileno()

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        if self._least > 1:
            self.expect(0)
        is_drained = False
        if not self.has_pending:
            is_drained = self._feed(self._step)
        size = len(buffer)
        try:
            received = self._decrypt(size, buffer)
        except ssl.SSLError as error:
            received = self._nothing(error)
        if received == 0:
            self.has_pending = True
            return 0
        idle = self._idle - received * OVERHEAD
        self._idle = idle if idle > 0 else 0
        if self._outgoing.pending:
            self._answer()
        if received < size:
            if received >= RECORD // 2 or size > LARGE_ROOM:
                return received + self._recv_more(memoryview(buffer)[received:], is_drained=is_drained)
            # A small record is the last for now; if not, it waits here, or the system tells of the next.
            self.has_pending = self._incoming.pending > 0
        else:
            self.has_pending = self._incoming.pending > 0 or self._tls.pending() > 0
        return received

    def _recv_more(self, room: memoryview, *, is_drained: bool) -> int:
        """Bytes of further records, as many as there are room and records. An end or an error is left for the next.

        ``is_drained``: whether the system has just given all that it had. It will tell of more.
        """
        size, decrypt = len(room), self._decrypt
        while room:
            before = len(room)
            try:
                try:
                    # One record each: a frame of 1 MB may come in hundreds of them, so this does nothing else.
                    while room:
                        count = decrypt(0, room)
                        if not count:
                            self.has_pending = True
                            return size - len(room)
                        room = room[count:]
                finally:
                    self._excuse(before - len(room))
            except ssl.SSLWantReadError:
                try:
                    self._check_idle()
                    if is_drained:
                        self.has_pending = False
                        return size - len(room)
                    is_drained = self._feed(self._scratch[:MORE])
                except BlockingIOError:
                    self.has_pending = False
                    return size - len(room)
                except OSError:
                    self.has_pending = True
                    return size - len(room)
            except OSError:
                self.has_pending = True
                return size - len(room)
        self.has_pending = self._incoming.pending > 0 or self._tls.pending() > 0
        return size

    def _excuse(self, received: int) -> None:
        """Count bytes for the caller. ``ConnectionAbortedError`` as :meth:`_answer`."""
        self._idle = max(0, self._idle - received * OVERHEAD)
        if self._outgoing.pending:
            self._answer()

    def _check_idle(self) -> None:
        """``ConnectionAbortedError`` for a peer that sends a lot without a byte for the caller."""
        if self._idle > MAX_IDLE_BYTES:
            raise ConnectionAbortedError("the other side keeps TLS busy and sends no data")

    def _feed(self, room: memoryview) -> bool:
        """Take what fits into ``room`` from the system; ``OSError``, or ``BlockingIOError`` if there is nothing.

        Whether it was all that there was.
        """
        count = self._sock.recv_into(room)
        if count:
            self._incoming.write(room[:count])
            self._idle += count
        else:
            self._incoming.write_eof()
        return count < len(room)

    def _nothing(self, error: ssl.SSLError) -> int:
        """After a read that gave nothing: 0 at the end, ``BlockingIOError`` if more must come, or the error.

        ``ConnectionAbortedError`` for a peer that sends a lot without a byte for the caller.
        """
        if isinstance(error, ssl.SSLWantReadError):
            self.has_pending = True  # if one of these ends the connection
            if self._outgoing.pending:
                self._answer()
            self._check_idle()
            self.has_pending = False
            raise BlockingIOError from None
        if isinstance(error, ssl.SSLEOFError):
            return 0  # cut off
        with suppress(OSError):
            self._answer()
        raise error

    def _answer(self) -> None:
        """Send what TLS itself has to say. ``ConnectionAbortedError`` if the other side asks and does not read."""
        if self._stuck is None:
            with suppress(BlockingIOError):
                self._drain()
        if self._outgoing.pending > MAX_IDLE_BYTES:
            raise ConnectionAbortedError("the other side does not read what TLS answers")

    # --- writing

    def send(self, data: Buffer) -> int:
        if self._stuck is not None or self._held or len(data) > ENCRYPTED:
            return self._send((data,))
        size = self._encrypt(data)
        encrypted = self._outgoing.read()
        try:
            sent = self._sock.send(encrypted)
        except BlockingIOError:
            sent = 0
        if sent < len(encrypted):
            self._stuck = memoryview(encrypted)[sent:]
            try:
                self._drain()
            except BlockingIOError:
                self._stuck_size = size
                raise
        return size

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        if self._stuck is not None or self._held or sum(map(len, buffers)) > ENCRYPTED:
            return self._send(buffers)
        return self.send(b"".join(buffers))

    def send_more(self, buffers: Sequence[Buffer]) -> int:
        """Keeps the bytes for the record of what follows, if they are few."""
        if self._stuck is not None or self._held or sum(map(len, buffers)) > RECORD:
            return self._send(buffers)
        self._held = b"".join(buffers)
        return len(self._held)

    def sendfile(self, fd: int, position: int, length: int) -> int:
        if self._stuck is not None and (size := self._send_again()):
            return size
        held, room = len(self._held), self._scratch
        end = min(PIECE, held + length)
        room[:held] = self._held
        count = _read_file(fd, room[held:end], position)
        return self._write(room[: held + count]) if count else 0

    def _send(self, buffers: Sequence[Buffer]) -> int:
        if self._stuck is not None and (size := self._send_again()):
            return size
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
        """Write a piece that begins with the bytes held back; how many of the others were taken."""
        view, held, taken = memoryview(piece), len(self._held), 0
        while True:
            count = self._encrypt(view[:ENCRYPTED])
            size, view = count - held, view[count:]
            self._held, held = b"", 0
            try:
                self._drain()
            except BlockingIOError:
                self._stuck_size = size
                if not taken:
                    raise
                return taken
            taken += size
            if not view:
                return taken

    def _send_again(self) -> int:
        """Go on with what is stuck; how many bytes of the caller were in there. The caller offers them again."""
        self._drain()
        size, self._stuck_size = self._stuck_size, 0
        return size

    def _drain(self) -> None:
        """Give the system what is encrypted. ``OSError``; ``BlockingIOError`` if it does not take all now."""
        rest = self._stuck
        while True:
            if rest is None:
                if not self._outgoing.pending:
                    return
                self._stuck = rest = memoryview(self._outgoing.read())
            sent = self._sock.send(rest)
            self._stuck = rest = rest[sent:] if sent < len(rest) else None

    # --- waiting

    def expect(self, count: int) -> None:
        """Let the system tell of nothing until much is there of ``count`` bytes for the caller, which are sure to come.

        For the rest of a large frame: a client sends one in hundreds of small records, and a wake-up for some of them
        costs more than they do. It holds until the next read. The end, and a loss, are told of at once.
        """
        least = min(count - _HELD_BY_TLS, EXPECTED)
        if least < LEAST_EXPECTED or self.has_pending or not _CAN_EXPECT:
            least = 1
        if least != self._least:
            self._least = least
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

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
                try:
                    self._tls.unwrap()  # tells the other side that nothing was cut off; does not wait for its answer
                except ssl.SSLWantReadError:
                    self._drain()
        self._stuck = None
        sock.close()


def _read_file(fd: int, room: memoryview, position: int) -> int:
    """``os.preadv``, which some systems do not have, into one buffer."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [room], position)
    data = os.pread(fd, len(room), position)
    room[: len(data)] = data
    return len(data)
