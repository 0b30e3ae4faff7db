"""A connection with TLS: ``env.Stream`` over a socket that never blocks, with OpenSSL between two buffers in memory.

OpenSSL is given a bounded number of bytes at a time. Left to read from a socket itself, it goes on for as long as the
other side sends what is not for the caller, as updates of keys are: one client could hold the event loop for ever.

Two things are otherwise than with TCP. Bytes may wait inside the TLS layer, where the system does not see them:
``has_pending`` says so, and :class:`PendingPoller` calls for them. And what was encrypted and not taken by the system
is kept, and counts as taken only when the system has all of it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
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
"""The most bytes that one call writes, and the size of the room for them."""

STEP = 32 * 1024
"""The most bytes that are encrypted, or first decrypted, at a time: about the most that is kept for a slow reader."""

MORE = 64 * 1024
"""The most bytes that are decrypted at a time once there was data. With fewer, a large frame costs more."""

OVERHEAD = 100
"""A byte for the caller excuses so many bytes of ciphertext: more than any record around a single byte has."""

MAX_IDLE_BYTES = 32 * 1024
"""Ciphertext that no byte for the caller excuses: more than a whole record, and what a peer may send of TLS's own."""


class TlsStream:
    """One end of a TLS connection, with the handshake still to come."""

    __slots__ = (
        "_held",
        "_idle",
        "_incoming",
        "_outgoing",
        "_scratch",
        "_sock",
        "_stuck",
        "_stuck_size",
        "_tls",
        "has_pending",
        "local",
        "peer",
    )

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
        self._stuck: memoryview | None = None
        """Encrypted bytes that the system has not taken yet: nothing else can be sent before."""
        self._stuck_size = 0
        """How many of the caller's bytes are in there. The caller has not been told that they were taken."""
        self.has_pending = False
        """Whether there may be something to read that the system does not tell of: bytes, or the end."""
        self._idle = 0
        """Bytes of ciphertext that were read, less those that the bytes for the caller excuse."""
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

    async def handshake(self) -> None:
        """Shake hands. ``OSError``, an ``ssl.SSLError`` among them, if that fails."""
        while not self._handshake_step():
            await self._flush()
            await self._more()
        await self._flush()
        self.has_pending = self._incoming.pending > 0

    async def handshake_by(self, take_step: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
        """Shake hands with a client, whose turn it is first; ``take_step`` calls each step. Errors as `handshake`."""
        while True:
            await self._more()
            is_done = await take_step(self._handshake_step)
            await self._flush()
            if is_done:
                break
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
            self._feed()

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
        if not self.has_pending:
            self._feed()
        size = len(buffer)
        received = self._decrypt(size, buffer)
        if received == 0:
            self.has_pending = True
        elif received < size and (received >= RECORD // 2 or size > LARGE_ROOM):
            received += self._recv_more(memoryview(buffer)[received:])
        else:
            # A small record is the last for now; if not, it waits here, or the system tells of the next.
            self.has_pending = self._incoming.pending > 0 or self._tls.pending() > 0
        return received

    def _recv_more(self, room: memoryview) -> int:
        """Bytes of further records, as many as there are room and records. An end or an error is left for the next."""
        size, received = len(room), 0
        read = self._tls.read
        while received < size:
            before = received
            try:
                try:
                    # One record each: a frame of 1 MB may come in hundreds of them, so this does nothing else.
                    while received < size:
                        count: int = read(size - received, room[received:])  # type: ignore[assignment]
                        if not count:
                            self.has_pending = True
                            return received
                        received += count
                finally:
                    self._excuse(received - before)
            except ssl.SSLWantReadError:
                try:
                    self._check_idle()
                    self._feed(MORE)
                except BlockingIOError:
                    self.has_pending = False
                    return received
                except OSError:
                    self.has_pending = True
                    return received
            except OSError:
                self.has_pending = True
                return received
        self.has_pending = self._incoming.pending > 0 or self._tls.pending() > 0
        return received

    def _excuse(self, received: int) -> None:
        """Count bytes for the caller. ``ConnectionAbortedError`` as :meth:`_answer`."""
        self._idle = max(0, self._idle - received * OVERHEAD)
        if self._outgoing.pending:
            self._answer()

    def _check_idle(self) -> None:
        """``ConnectionAbortedError`` for a peer that sends a lot without a byte for the caller."""
        if self._idle > MAX_IDLE_BYTES:
            raise ConnectionAbortedError("the other side keeps TLS busy and sends no data")

    def _feed(self, most: int = STEP) -> None:
        """Take at most so many bytes from the system; ``OSError``, or ``BlockingIOError`` if there are none."""
        room = self._scratch[:most]
        count = self._sock.recv_into(room)
        if count:
            self._incoming.write(room[:count])
            self._idle += count
        else:
            self._incoming.write_eof()

    def _decrypt(self, size: int, room: bytearray | memoryview) -> int:
        """Bytes from what was taken; 0 at the end, ``BlockingIOError`` if more must come.

        ``ConnectionAbortedError`` for a peer that sends a lot without a byte for the caller.
        """
        try:
            received: int = self._tls.read(size, room)  # type: ignore[assignment]  # with room, it is a number
        except ssl.SSLWantReadError:
            self.has_pending = True  # if one of these ends the connection
            if self._outgoing.pending:
                self._answer()
            self._check_idle()
            self.has_pending = False
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return 0  # cut off
        except ssl.SSLError:
            with suppress(OSError):
                self._answer()
            raise
        self._excuse(received)
        return received

    def _answer(self) -> None:
        """Send what TLS itself has to say. ``ConnectionAbortedError`` if the other side asks and does not read."""
        if self._stuck is None:
            with suppress(BlockingIOError):
                self._drain()
        if self._outgoing.pending > MAX_IDLE_BYTES:
            raise ConnectionAbortedError("the other side does not read what TLS answers")

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
            count = self._tls.write(view[:STEP])
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
