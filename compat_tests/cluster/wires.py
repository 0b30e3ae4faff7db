"""The network between the nodes of a cluster, as something that a test can cut, slow and forget.

:class:`WiredCluster` is a cluster whose nodes reach one another only through proxies of this process, while clients
reach each node straight. A proxy knows from the first request on a connection which node it comes from, as nodes
name themselves, so each direction of each pair of nodes is a link of its own.

What a cut link loses TCP sends again when the link is back: bytes wait, in their order, on connections that stay open,
and new connections get no answer. Packets lost by chance are late, with all behind them. What cannot be shown here:
an attempt to connect that is not even accepted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import trio

from kbroker.testing import RunningCluster
from kbroker.tools.cli.cluster_plan import HOST, NodePlan, free_ports, prepare
from tests.patience import SHORT

_NODE_NAME = re.compile(rb"^(?:broker|raft-client|to-controller)-(\d+)")
_CHUNK = 64 * 1024


@dataclass
class Link:
    """One direction between two nodes."""

    cut: bool = False
    delay: float = 0.0
    """Seconds that bytes take."""
    bytes_per_second: float = 1e9
    loss: float = 0.0
    """The share of sends that are lost (0 to 1) and repeated, which takes a fifth of a second and more."""
    busy_until: float = 0.0


class _Connection:
    """A connection through the proxy: the end that a node opened, and the end at the node that it is to."""

    def __init__(self, source: trio.SocketStream, target: trio.SocketStream) -> None:
        self.source = source
        self.target = target
        self.forgotten = False
        """The target's end is gone, and nobody tells the source."""


class Wires:
    """Proxies and the links between nodes, in a thread of their own. All methods may be called from any other."""

    def __init__(self) -> None:
        self._listeners: list[tuple[int, int, trio.SocketListener]] = []
        self._links: dict[tuple[int, int], Link] = defaultdict(Link)
        self._connections: dict[_Connection, tuple[int, int]] = {}
        self._changed = trio.Event()
        self._rng = random.Random(12)
        self._token: trio.lowlevel.TrioToken
        self._scope = trio.CancelScope()
        self._thread: threading.Thread | None = None
        self.held = 0
        """The number of times that bytes had to wait for a link."""

    def add(self, node: int, port: int) -> int:
        """A port of the proxy that leads to a port of a node. To be called before ``start``."""
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        [own] = free_ports(1)
        found.bind((HOST, own))
        found.listen(100)
        self._listeners.append((node, port, trio.SocketListener(trio.socket.from_stdlib_socket(found))))
        return own

    def start(self) -> None:
        """Begin to pass on."""
        ready = threading.Event()

        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for node, port, listener in self._listeners:
                        nursery.start_soon(self._accept, node, port, listener)
                    ready.set()

        self._thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        """End all connections and listen no more."""
        if self._thread is not None:
            trio.from_thread.run_sync(self._scope.cancel, trio_token=self._token)
            self._thread.join(SHORT)

    # --- What a test does ---------------------------------------------------------------------------------------

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Nothing gets from one of the first to one of the second."""
        wanted = list(targets)
        self._change({(a, b): {"cut": True} for a in sources for b in wanted if a != b})

    def cut_both_ways(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Two groups of nodes hear nothing of one another."""
        left, right = list(some), list(others)
        self.cut(left, right)
        self.cut(right, left)

    def slow(self, nodes: Iterable[int], delay: float, bytes_per_second: float = 1e9, loss: float = 0.0) -> None:
        """Every link between these nodes is like that."""
        found = list(nodes)
        quality = {"delay": delay, "bytes_per_second": bytes_per_second, "loss": loss}
        self._change({(a, b): quality for a in found for b in found if a != b})

    def forget(self, node: int) -> int:
        """Connections to a node are gone at its end alone: who opened them goes on to send, into the void. How many."""

        def forget() -> int:
            found = [each for each, (_, target) in self._connections.items() if target == node and not each.forgotten]
            for connection in found:
                connection.forgotten = True
                _reset(connection.target)
            return len(found)

        return trio.from_thread.run_sync(forget, trio_token=self._token)

    def heal(self) -> None:
        """All links are good; what was lost is sent again, and whoever sends into the void is told."""

        def heal() -> None:
            for connection in self._connections:
                if connection.forgotten:
                    _reset(connection.source)
            self._links.clear()
            self._wake()

        trio.from_thread.run_sync(heal, trio_token=self._token)

    def _change(self, changes: Mapping[tuple[int, int], Mapping[str, float]]) -> None:
        def change() -> None:
            for key, values in changes.items():
                self._links[key] = dataclasses.replace(self._links[key], **values)  # type: ignore[arg-type]
            self._wake()

        trio.from_thread.run_sync(change, trio_token=self._token)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- Passing on ---------------------------------------------------------------------------------------------

    async def _accept(self, node: int, port: int, listener: trio.SocketListener) -> None:
        async with listener, trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await listener.accept()
                except OSError:
                    continue  # reset before it was looked at
                nursery.start_soon(self._pass_on, node, port, stream)

    async def _pass_on(self, node: int, port: int, stream: trio.SocketStream) -> None:
        try:
            begun = await _first_request(stream)
            source = _node_of(begun)
            await self._until_open(source, node)
            await self._until_open(node, source)
            target = await trio.open_tcp_stream(HOST, port)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            _reset(stream)
            return
        connection = _Connection(stream, target)
        self._connections[connection] = source, node
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, connection, stream, target, (source, node), begun)
                nursery.start_soon(self._pump, connection, target, stream, (node, source), b"")
        finally:
            del self._connections[connection]
            _reset(stream)
            _reset(target)

    async def _pump(
        self,
        connection: _Connection,
        source: trio.SocketStream,
        target: trio.SocketStream,
        key: tuple[int, int],
        begun: bytes,
    ) -> None:
        """Bytes of one direction, at their time. The end of the connection waits its turn like any bytes."""
        queue, due = trio.open_memory_channel[tuple[float, bytes | None]](32)

        async def take() -> None:
            async with queue:
                data: bytes | None = begun
                while data is not None:
                    if data:
                        await queue.send((self._arrival(key, len(data)), data))
                    try:
                        data = bytes(await source.receive_some(_CHUNK)) or None
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        data = None
                await queue.send((self._arrival(key, 0), None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            async for at, data in due:
                await trio.sleep_until(at)
                await self._until_open(*key)
                if connection.forgotten:
                    if target is connection.source or data is None:
                        await self._until_told(connection)
                    continue
                if data is None:
                    # A node that ends a connection wants nothing more of it, so neither end is of use.
                    _reset(connection.source)
                    _reset(connection.target)
                    nursery.cancel_scope.cancel()
                    return
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await target.send_all(data)

    async def _until_told(self, connection: _Connection) -> None:
        """The target's end of a forgotten connection says no more."""
        while connection.source.socket.fileno() >= 0:
            await self._changed.wait()

    def _arrival(self, key: tuple[int, int], size: int) -> float:
        link = self._links[key]
        link.busy_until = max(link.busy_until, trio.current_time()) + size / link.bytes_per_second
        late = self._rng.uniform(0.2, 0.5) if link.loss and self._rng.random() < link.loss else 0.0
        return link.busy_until + link.delay + late

    async def _until_open(self, source: int, target: int) -> None:
        waited = False
        while self._links[source, target].cut:
            waited = True
            await self._changed.wait()
        self.held += waited


async def _first_request(stream: trio.SocketStream) -> bytes:
    """Read the first request of a node, at least up to the name in it."""
    begun = b""
    while len(begun) < 14 or len(begun) < 14 + int.from_bytes(begun[12:14], "big", signed=True):
        data = await stream.receive_some(_CHUNK)
        if not data:
            raise trio.ClosedResourceError
        begun += data
    return begun


def _node_of(begun: bytes) -> int:
    """The node that sent these first bytes of a request, by the client id in its header."""
    name = begun[14 : 14 + int.from_bytes(begun[12:14], "big", signed=True)]
    found = _NODE_NAME.match(name)
    assert found is not None, f"{name!r} is the name of no node"
    return int(found[1])


def _reset(stream: trio.SocketStream) -> None:
    if stream.socket.fileno() >= 0:
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()


class WiredCluster(RunningCluster):
    """A cluster whose nodes reach one another only through :attr:`wires`."""

    def __init__(self, count: int = 3, properties: Mapping[str, object] | None = None) -> None:
        self.wires = Wires()
        super().__init__(count, properties)
        plans = [node._plan for node in self.nodes]
        controllers = {
            plan.node_id: f"{HOST}:{self.wires.add(plan.node_id, plan.controller_port)}"
            for plan in plans
            if plan.controller_port is not None
        }
        wired = [self._wire(plan, controllers) for plan in plans]
        prepare(wired)
        for node, plan in zip(self.nodes, wired, strict=True):
            node._plan = plan

    def _wire(self, plan: NodePlan, controllers: Mapping[int, str]) -> NodePlan:
        [own] = free_ports(1)
        between = f"REPLICATION://{HOST}:{own}"
        advertised = f"REPLICATION://{HOST}:{self.wires.add(plan.node_id, own)}"
        if plan.node_id in controllers:
            advertised += f",CONTROLLER://{controllers[plan.node_id]}"
        names = ("PLAINTEXT", "REPLICATION", "CONTROLLER")
        return dataclasses.replace(
            plan,
            properties={
                **plan.properties,
                "controller.quorum.voters": ",".join(f"{node}@{address}" for node, address in controllers.items()),
                "listeners": f"{plan.properties['listeners']},{between}",
                "advertised.listeners": f"PLAINTEXT://{plan.address},{advertised}",
                "inter.broker.listener.name": "REPLICATION",
                "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            },
        )

    def start(self) -> RunningCluster:
        if self.wires._thread is None:
            self.wires.start()
        return super().start()

    def heal(self) -> None:
        self.wires.heal()
        super().heal()

    def stop(self) -> None:
        self.wires.heal()
        try:
            super().stop()
        finally:
            self.wires.stop()
