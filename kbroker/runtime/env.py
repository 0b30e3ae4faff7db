"""Everything that is not deterministic comes in through :class:`Env`: clocks, randomness, network, disk, threads.

``RealEnv`` is the machine. A simulation gives a node another one. Left out on purpose: sleeping and deadlines, which
are Trio's (its clock is the monotonic one here, and a simulation runs Trio on a clock of its own).
"""

from __future__ import annotations

import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from kbroker.runtime.bound_ports import addresses_of, bind_all, cannot_listen, is_numeric, listen, no_name
from kbroker.runtime.budgets import DEFAULTS, Budgets
from kbroker.runtime.epoll_poller import EpollPoller
from kbroker.runtime.round import Round
from kbroker.runtime.timing import Deadline

if TYPE_CHECKING:
    from kbroker.log.disk import Disk

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Stream(Protocol):
    """One end of a connection. The calls without ``async`` never wait: they raise ``BlockingIOError`` instead.

    ``OSError`` from any of them means that the connection is lost. Left out: half-close, options, TLS.
    """

    peer: tuple[str, int]

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Bytes read; 0 when the peer has closed."""

    def send(self, data: Buffer) -> int:
        """Bytes taken, at least 1."""

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Vectored ``send``."""

    def send_more(self, buffers: Sequence[Buffer]) -> int:
        """``sendmsg`` of bytes that more will follow at once, so they need not leave alone."""

    def sendfile(self, fd: int, position: int, length: int) -> int:
        """File bytes taken; 0 when the file ends before ``position + 1``."""

    async def wait_readable(self) -> None: ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None: ...


class StreamListener(Protocol):
    """A bound port, which nobody else can have. Connections are refused until it listens."""

    address: tuple[str, int]

    def listen(self) -> None:
        """Take connections from now on; :class:`FatalError` when another process has come to listen there."""

    async def accept(self) -> Stream: ...

    def close(self) -> None: ...


class Poller(Protocol):
    """Watches many streams for bytes to read in one task, without switching to a task for each."""

    round: Round
    """The present round, for the streams' callbacks."""

    def register(self, stream: Any, callback: Callable[[], None], *, is_new: bool = False) -> None:
        """Have ``callback()`` called whenever there is something to read (or the end), until ``unregister``.

        What comes first of a new stream may wait while others are served.
        """

    def unregister(self, stream: Any) -> None: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        """Have ``callback()`` called at a time (``Env.now``) while ``run`` runs: it may wake a task, and no more."""

    def call_off(self, deadline: Deadline) -> None:
        """Do not call it, if it has not been called."""

    def serve_readable(self) -> None:
        """Serve the streams that are readable, before the caller makes a step that takes as long as some requests."""

    async def run(self) -> None:
        """The work, until cancelled."""


class Network(Protocol):
    """Where streams come from."""

    def poller(self) -> Poller | None:
        """A new poller, or ``None`` where each stream is to be waited for by its own task."""

    async def bind(self, host: str, port: int) -> StreamListener:
        """Bind a port (0 picks a free one); :class:`FatalError` when it cannot be had."""

    async def connect(self, host: str, port: int) -> Stream:
        """Connect to a peer; ``OSError`` when that fails."""


class DiskReads:
    """Pieces of records that were not in memory when a client was to have them: their number, and their bytes."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count = self.bytes = 0

    def add(self, length: int) -> None:
        """Count a piece."""
        self.count += 1
        self.bytes += length


class Env(Protocol):
    """The world around one node."""

    rng: random.Random
    disk: Disk
    network: Network
    disk_reads: DiskReads
    budgets: Budgets
    has_threads: bool
    """Whether ``run_long`` leaves the event loop to others, at the price of a thread's memory."""

    def now(self) -> float:
        """Monotonic seconds: for durations and deadlines, the clock of ``trio.current_time``."""

    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970, as in record timestamps; may jump."""

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """Run long file work off the event loop (here: in a thread)."""

    async def run_long(self, fn: Callable[[], T]) -> T:
        """Run file work that may take minutes, and that is told by its caller to stop, off the event loop.

        Its threads give Python's lock to the event loop in ``short_turns``.
        """

    def in_memory(self, fd: int, position: int, length: int) -> bool:
        """Whether reading these file bytes would not wait for a disk, as far as can be told cheaply."""

    def read_now(self, fd: int, position: int, length: int) -> bytearray | None:
        """Read bytes of a file if all of them are there and no disk has to be waited for; None if not."""

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        """Bring file bytes into the page cache; waits for the disk, so it is for ``run_blocking``."""


def can_sendfile() -> bool:
    """Whether ``os.sendfile`` between a file and a socket works as on Linux."""
    return sys.platform.startswith("linux") and hasattr(os, "sendfile")


_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

_LOCAL_SEND_BUFFER = 256 * 1024
"""Bytes of answers that the system may keep for a peer on this machine, which reads them at once. What it would keep
otherwise, some MB, leaves the processor's cache before: a consumer is a fifth slower, and takes as much more time."""


class RealStream:
    """A TCP connection of this machine."""

    __slots__ = ("_is_awaited", "_sock", "_use_sendfile", "peer", "recv_into", "send", "sendmsg")

    def __init__(self, sock: socket.socket, *, use_sendfile: bool, peer: tuple[Any, ...] | None = None) -> None:
        """``peer``: the peer's address, as the system gives it, where that is known."""
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # not TCP, or already gone: the first read tells
        self._sock = sock
        self._use_sendfile = use_sendfile
        # Bound methods of the socket itself: this is the hot path, a hop less.
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.sendmsg = sock.sendmsg
        self._is_awaited = False
        try:
            self.peer = _address(peer or sock.getpeername())
            if _address(sock.getsockname())[0] == self.peer[0]:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOCAL_SEND_BUFFER)
        except OSError:
            self.peer = ("?", 0)

    def send_more(self, buffers: Sequence[Buffer]) -> int:
        return self._sock.sendmsg(buffers, (), _MSG_MORE)

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._sock.fileno()

    @property
    def sock(self) -> socket.socket:
        """The socket, for whoever puts TLS around it."""
        return self._sock

    def sendfile(self, fd: int, position: int, length: int) -> int:
        if self._use_sendfile:
            return os.sendfile(self._sock.fileno(), fd, position, length)
        data = os.pread(fd, min(length, 256 * 1024), position)
        return self._sock.send(data) if data else 0

    async def wait_readable(self) -> None:
        self._is_awaited = True
        await trio.lowlevel.wait_readable(self._sock)

    async def wait_writable(self) -> None:
        self._is_awaited = True
        await trio.lowlevel.wait_writable(self._sock)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            if self._is_awaited:
                trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


def _address(name: Any) -> tuple[str, int]:
    return (name[0], name[1]) if isinstance(name, tuple) else (str(name), 0)


class RealListener:
    """A TCP port of this machine, at one address or at several."""

    def __init__(self, sockets: list[socket.socket], *, use_sendfile: bool) -> None:
        self._sockets = sockets
        self._use_sendfile = use_sendfile
        self.address = _address(sockets[0].getsockname())

    def listen(self) -> None:
        listen(self._sockets, 512)

    async def accept(self) -> Stream:
        sockets = self._sockets
        while True:
            for index, each in enumerate(sockets):
                try:
                    sock, peer = each.accept()
                except BlockingIOError:
                    continue
                self._sockets = [*sockets[index + 1 :], *sockets[: index + 1]]  # each address gets its turn
                return RealStream(sock, use_sendfile=self._use_sendfile, peer=peer)
            await self._wait_readable()

    async def _wait_readable(self) -> None:
        if len(self._sockets) == 1:
            await trio.lowlevel.wait_readable(self._sockets[0])
            return

        async def wait(sock: socket.socket) -> None:
            with suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(sock)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for each in self._sockets:
                nursery.start_soon(wait, each)
        if self._sockets[0].fileno() < 0:
            raise trio.ClosedResourceError

    def close(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                trio.lowlevel.notify_closing(sock)
                sock.close()


class RealNetwork:
    """TCP. Either flag set to False has it behave as on a system without epoll or sendfile (for tests)."""

    def __init__(
        self, *, use_sendfile: bool | None = None, use_epoll: bool | None = None, crowd: int = DEFAULTS.crowd
    ) -> None:
        self._crowd = crowd
        self.use_sendfile = can_sendfile() if use_sendfile is None else use_sendfile
        self.use_epoll = hasattr(select, "epoll") if use_epoll is None else use_epoll

    def poller(self) -> Poller | None:
        return EpollPoller(self._crowd) if self.use_epoll else None

    async def bind(self, host: str, port: int) -> StreamListener:
        try:
            addresses = addresses_of(host) if is_numeric(host) else await trio.to_thread.run_sync(addresses_of, host)
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        return RealListener(bind_all(host, addresses, port), use_sendfile=self.use_sendfile)

    async def connect(self, host: str, port: int) -> Stream:
        try:
            stream = await trio.open_tcp_stream(host, port)
        except UnicodeError as error:
            raise no_name(host, error) from error
        sock = stream.socket
        plain = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
        return RealStream(plain, use_sendfile=self.use_sendfile)


class RealEnv:
    """The machine this process runs on. ``seed`` is for tests that want repeatable random choices."""

    has_threads = True

    def __init__(
        self,
        *,
        seed: int | None = None,
        use_sendfile: bool | None = None,
        use_epoll: bool | None = None,
        budgets: Budgets = DEFAULTS,
    ) -> None:
        from kbroker.log.disk import OsDisk

        self.rng: random.Random = random.Random(seed) if seed is not None else random.SystemRandom()
        self.disk: Disk = OsDisk()
        self.disk_reads = DiskReads()
        self.budgets = budgets
        self.network: Network = RealNetwork(use_sendfile=use_sendfile, use_epoll=use_epoll, crowd=budgets.crowd)

    def now(self) -> float:
        return trio.current_time()

    def wall_clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        return await trio.to_thread.run_sync(fn, *args)

    async def run_long(self, fn: Callable[[], T]) -> T:
        from kbroker.base.short_turns import short_turns  # here: a start that has all in order does without it

        def run() -> T:
            with short_turns():
                return fn()

        return await trio.to_thread.run_sync(run)

    def in_memory(self, fd: int, position: int, length: int) -> bool:
        if not _HAS_NOWAIT:
            return True
        probe = bytearray(1)
        try:
            # First, middle and last page: read-ahead and eviction both work in runs.
            for at in (position, position + length // 2, position + length - 1):
                os.preadv(fd, [probe], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the file system cannot say
        return True

    def read_now(self, fd: int, position: int, length: int) -> bytearray | None:
        if not _HAS_NOWAIT:
            return None
        data = bytearray(length)
        try:
            count = os.preadv(fd, [data], position, os.RWF_NOWAIT)
        except OSError:
            return None
        return data if count == length else None

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        end = position + length
        while position < end:
            data = os.pread(fd, min(256 * 1024, end - position), position)
            if not data:
                return
            position += len(data)


_HAS_NOWAIT = sys.platform.startswith("linux") and hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")
