"""The network of simulated nodes: connections that are slow, stall, break and are refused, as TCP's are.

What is modelled: latency and bandwidth of each direction of each link; order within a connection; a window, so that
a reader who does not read stops the writer; lost packets, which TCP sends again, so that they are late and all behind
them too; links cut in one direction or both, on which bytes wait to be sent again; connections to a dead process, which
are reset, and to a dead machine, which say nothing; reads that return less than there is. Not modelled: the
machine's own limit on how long it tries (a quarter of an hour and more), addresses that change.
"""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal
from zlib import crc32

import trio

from kbroker.errors import FatalError
from kbroker.runtime.env import Buffer
from kbroker.sim.clock import SimClock
from kbroker.sim.poller import SimPoller
from kbroker.sim.world import Trace

WINDOW = 256 * 1024
"""Bytes that may be on their way, or unread, in one direction of a connection."""


@dataclass(slots=True)
class LinkFaults:
    """The faults of the network: seconds, probabilities from 0 to 1, bytes per second."""

    min_latency: float = 0.0002
    max_latency: float = 0.002
    loss: float = 0.0
    """The share of packets that have to be sent again."""
    bandwidth: float = 100e6
    short_reads: float = 0.02
    """The share of reads that return less than there is."""
    tick: float = 0.0
    """Machines are told of what has come at multiples of this: of what comes from several others, at once."""

    @classmethod
    def random(cls, rng: random.Random) -> LinkFaults:
        """A network as it may be, most often a good one."""
        low, high = rng.choice(((0.0001, 0.001), (0.0002, 0.005), (0.001, 0.02), (0.02, 0.05)))
        return cls(low, high, loss=rng.choice((0.0, 0.0, 0.0, 0.01)), bandwidth=rng.choice((100e6, 100e6, 1e6)))


class SimHost:
    """A machine with an address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.bound: dict[int, SimListener] = {}
        self.listeners: dict[int, SimListener] = {}
        """Those of the bound that listen."""
        self.streams: dict[SimStream, None] = {}
        self.next_port = 40_000


class SimStream:
    """One end of a connection: the interface of :class:`kbroker.runtime.env.Stream`."""

    def __init__(self, net: SimNet, host: SimHost, local: tuple[str, int], peer: tuple[str, int]) -> None:
        self.local = local
        self.peer = peer
        self.other: SimStream
        self.host = host
        self._net = net
        self._unread: deque[memoryview] = deque()
        self._unread_bytes = 0
        self.on_way = 0
        """Bytes sent that have not arrived."""
        self.waiting: deque[bytes | Literal["fin"]] = deque()
        """Packets that were lost on their way and are to be sent again, oldest first."""
        self.last_arrival = 0.0
        """When the latest of what is on its way arrives: nothing may arrive before it."""
        self._eof = False
        self._broken: OSError | None = None
        self.closed = False
        self._reader: trio.lowlevel.Task | None = None
        self._writer: trio.lowlevel.Task | None = None
        self.poller: SimPoller | None = None
        """Calls back when there is something to read."""

    # What a node calls

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if not self._unread:
            if self._broken is not None:
                raise self._broken
            if self._eof:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing there yet")
        view = memoryview(buffer)
        rng, faults = self._net.rng, self._net.faults
        limit = len(view)
        if faults.short_reads and rng.random() < faults.short_reads:
            limit = min(limit, rng.randint(1, self._unread_bytes))
        unread = self._unread
        if len(unread) == 1 and self._unread_bytes <= limit:  # most often
            position, self._unread_bytes = self._unread_bytes, 0
            view[:position] = unread.pop()
            if self.other._writer is not None:
                self.other._wake_writer()
            return position
        position = 0
        while unread and position < limit:
            chunk = unread[0]
            size = min(len(chunk), limit - position)
            view[position : position + size] = chunk[:size]
            position += size
            if size == len(chunk):
                unread.popleft()
            else:
                unread[0] = chunk[size:]
        self._unread_bytes -= position
        self.other._wake_writer()
        return position

    def send(self, data: Buffer) -> int:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._broken is not None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = WINDOW - self.on_way - self.other._unread_bytes
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "the window is full")
        chunk = bytes(data[:room])
        self.on_way += len(chunk)
        self._net.transmit(self, chunk)
        return len(chunk)

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        return self.send(b"".join(buffers))

    send_more = sendmsg

    def sendfile(self, fd: int, position: int, length: int) -> int:
        raise NotImplementedError("files of a simulated disk have no descriptors")

    async def wait_readable(self) -> None:
        await self._wait("_reader", self.is_readable)

    async def wait_writable(self) -> None:
        has_room = self._broken is not None or self.on_way + self.other._unread_bytes < WINDOW
        await self._wait("_writer", has_room)

    async def _wait(self, who: str, is_ready: bool) -> None:
        """Wait as ``_reader`` or ``_writer`` until the other side wakes this one, unless there is no need to."""
        assert getattr(self, who) is None, "two tasks wait for the same"
        if self.closed:
            raise trio.ClosedResourceError
        if is_ready:
            await trio.lowlevel.checkpoint()
            return
        setattr(self, who, trio.lowlevel.current_task())

        def abort(_: Any) -> trio.lowlevel.Abort:
            setattr(self, who, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if self.closed:
            raise trio.ClosedResourceError

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.host.streams.pop(self, None)
        if self.poller is not None:
            self.poller.unregister(self)
        if self._broken is None:
            if self._unread:
                self._net.reset(self)  # as Linux does when there are bytes that nobody has read
            else:
                self._net.transmit(self, "fin")
        self._unread.clear()
        self._unread_bytes = 0
        self._wake_reader()
        self._wake_writer()

    # What the network calls

    @property
    def is_readable(self) -> bool:
        """Whether ``recv_into`` has something to tell."""
        return bool(self._unread) or self._eof or self._broken is not None

    def arrive(self, what: bytes | Literal["fin"]) -> None:
        """Bytes, or the end, have come."""
        if what == "fin":
            self._eof = True
        else:
            assert isinstance(what, bytes)
            self._unread.append(memoryview(what))
            self._unread_bytes += len(what)
        self._wake_reader()

    def break_with(self, error: OSError) -> None:
        """The connection is lost; bytes that came before may still be read."""
        if self._broken is None:
            self._broken = error
            self._wake_reader()
            self._wake_writer()

    def _wake_reader(self) -> None:
        task, self._reader = self._reader, None
        if task is not None:
            trio.lowlevel.reschedule(task)
        if self.poller is not None:
            self.poller.mark(self)

    def _wake_writer(self) -> None:
        task, self._writer = self._writer, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class SimListener:
    """A bound port: the interface of :class:`kbroker.runtime.env.StreamListener`."""

    def __init__(self, host: SimHost, port: int) -> None:
        self.address = (host.name, port)
        self._host = host
        self._queue: deque[SimStream] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._closed = False

    def listen(self) -> None:
        host, port = self.address
        if self._host.bound.get(port) is not self:
            raise FatalError(f"cannot listen on {host}:{port}: the port is in use")
        self._host.listeners[port] = self

    def offer(self, stream: SimStream) -> None:
        """A connection has been made."""
        self._queue.append(stream)
        self._wake()

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def accept(self) -> SimStream:
        while not self._queue:
            if self._closed:
                raise trio.ClosedResourceError
            self._task = trio.lowlevel.current_task()

            def abort(_: Any) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        return self._queue.popleft()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for those in (self._host.bound, self._host.listeners):
                if those.get(self.address[1]) is self:
                    del those[self.address[1]]
            while self._queue:
                self._queue.popleft().close()
            self._wake()


class SimNet:
    """All hosts and the links between them."""

    def __init__(self, clock: SimClock, rng: random.Random, trace: Trace, faults: LinkFaults | None = None) -> None:
        self.faults = faults or LinkFaults()
        self.rng = rng
        self._clock = clock
        self._trace = trace
        self._hosts: dict[str, SimHost] = {}
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._waiting: dict[SimStream, None] = {}
        """Those with something to send again."""
        self.messages = 0
        self.bytes = 0

    def host(self, name: str) -> SimHost:
        """The machine of a name, made when it is first asked for."""
        return self._hosts.setdefault(name, SimHost(name))

    # Faults

    def cut(self, sources: Iterable[str], destinations: Iterable[str]) -> None:
        """Nothing gets from ``sources`` to ``destinations``, not even what is on its way."""
        targets = list(destinations)
        self._cut |= {(a, b) for a in sources for b in targets if a != b}

    def cut_both_ways(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Two groups of machines hear nothing of one another."""
        left, right = list(some), list(others)
        self.cut(left, right)
        self.cut(right, left)

    def slow(self, host: str, latency: float) -> None:
        """All that goes to or from a machine takes ``latency`` seconds more; 0 for no longer."""
        for name in self._hosts:
            self._slow[(host, name)] = self._slow[(name, host)] = latency

    def heal(self) -> None:
        """All links work; what was lost is sent again."""
        self._cut.clear()
        self._slow.clear()
        self._send_all_again()

    def reaches(self, source: str, destination: str) -> bool:
        """Whether packets get from one to the other."""
        return (source, destination) not in self._cut and self._hosts[destination].up

    def stop_host(self, host: SimHost, *, silently: bool) -> None:
        """All processes of the machine end. Its peers hear of it, unless the machine goes ``silently``."""
        host.bound.clear()
        host.listeners.clear()
        streams = list(host.streams)
        host.streams.clear()
        for stream in streams:
            stream.closed = True
            stream.waiting.clear()
            if not silently:
                self.reset(stream)
            stream._wake_reader()
            stream._wake_writer()
        host.up = not silently

    def start_host(self, host: SimHost) -> None:
        """The machine answers again: with a reset, to those who send to connections of before."""
        if not host.up:
            host.up = True
            self._send_all_again()

    # Packets

    def _latency(self, source: str, destination: str) -> float:
        faults = self.faults
        return self.rng.uniform(faults.min_latency, faults.max_latency) + self._slow.get((source, destination), 0.0)

    def transmit(self, stream: SimStream, what: bytes | Literal["fin"]) -> None:
        """Bring it to the other end, in order."""
        if stream.waiting:
            stream.waiting.append(what)
            return
        faults = self.faults
        source, destination = stream.host.name, stream.other.host.name
        latency = self._latency(source, destination) + len(what) / faults.bandwidth
        if faults.loss and self.rng.random() < faults.loss:
            latency += self.rng.uniform(0.2, 0.5)
        arrival = self._clock.time + latency
        if faults.tick:
            arrival = ceil(arrival / faults.tick) * faults.tick
        stream.last_arrival = max(stream.last_arrival, arrival)
        self._clock.call_at(stream.last_arrival, self._deliver, stream, what)

    def _deliver(self, stream: SimStream, what: bytes | Literal["fin"]) -> None:
        other = stream.other
        source, destination = stream.host.name, other.host.name
        if stream.waiting or not self.reaches(source, destination):
            stream.waiting.append(what)  # lost, as everything behind something that is lost
            self._waiting[stream] = None
            return
        if other.closed:
            if what != "fin":
                self.reset(other)
            stream.on_way = 0
            return
        if what != "fin":
            assert isinstance(what, bytes)
            stream.on_way -= len(what)
            self.messages += 1
            self.bytes += len(what)
            self._trace.note(f"{source}:{stream.local[1]} > {destination}:{other.local[1]} {len(what)} {crc32(what):x}")
        other.arrive(what)

    def _send_all_again(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            lost, stream.waiting = stream.waiting, deque()
            stream.last_arrival = max(stream.last_arrival, self._clock.time + self.rng.uniform(0.05, 1.0))
            for what in lost:
                self.transmit(stream, what)

    def reset(self, stream: SimStream) -> None:
        """Tell the other end that the connection is lost; as all else, that may get lost."""
        other = stream.other
        source, destination = stream.host.name, other.host.name

        def arrive() -> None:
            if self.reaches(source, destination):
                other.break_with(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

        self._clock.call_at(self._clock.time + self._latency(source, destination), arrive)

    async def connect(self, source: SimHost, name: str, port: int) -> SimStream:
        """Make a connection; refused if nobody listens, after long tries given up if the machine does not answer."""
        again = 1.0
        while again < 70:
            there, back = self._latency(source.name, name), self._latency(name, source.name)
            target = self.host(name)
            if self.reaches(source.name, name) and self.reaches(name, source.name):
                await trio.sleep(there)
                listener = target.listeners.get(port)
                if self.reaches(source.name, name) and self.reaches(name, source.name):
                    if listener is None:
                        await trio.sleep(back)
                        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                    near, far = self._pair(source, target, port)
                    listener.offer(far)
                    try:
                        await trio.sleep(back)
                    except BaseException:
                        near.close()
                        raise
                    return near
            await trio.sleep(again)
            again *= 2
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def _pair(self, source: SimHost, target: SimHost, port: int) -> tuple[SimStream, SimStream]:
        source.next_port += 1
        near_address, far_address = (source.name, source.next_port), (target.name, port)
        near = SimStream(self, source, near_address, far_address)
        far = SimStream(self, target, far_address, near_address)
        near.other, far.other = far, near
        source.streams[near] = target.streams[far] = None
        return near, far


class NodeNetwork:
    """The network as one process sees it: the interface of :class:`kbroker.runtime.env.Network`."""

    def __init__(self, net: SimNet, host: SimHost, *, use_poller: bool = True) -> None:
        self.dead = False
        """The process is gone: what is left of its tasks reaches nobody."""
        self._net = net
        self._host = host
        self._use_poller = use_poller

    def poller(self) -> SimPoller | None:
        return SimPoller() if self._use_poller else None

    async def bind(self, host: str, port: int) -> SimListener:
        if port in self._host.bound:
            raise FatalError(f"cannot listen on {host}:{port}: the port is in use")
        listener = self._host.bound[port] = SimListener(self._host, port)
        return listener

    async def connect(self, host: str, port: int) -> SimStream:
        if self.dead:
            await trio.sleep(1)  # or it would try all the more often, until it has noticed that it is to end
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        stream = await self._net.connect(self._host, host, port)
        if self.dead:  # it has been killed since
            stream.close()
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        return stream
