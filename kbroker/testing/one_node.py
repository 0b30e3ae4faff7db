"""A node of this process, as a test reaches into it: in the node's own thread, between two of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kbroker.testing.parameters import Index, Seconds
from kbroker.testing.seen import CannotNow, ClockSeen, NodeAction, NodeSeen, NotThere
from kbroker.testing.verbs import Verbs

if TYPE_CHECKING:
    import trio

    from kbroker.client import Client
    from kbroker.node.broker import Broker
    from kbroker.testing.clock import MovedClock
    from kbroker.testing.faults import Faults
    from kbroker.testing.local_faults import LocalHost

T = TypeVar("T")


class OneNode(Verbs):
    """A node, its thread's Trio and its clock; they are there while it runs."""

    def __init__(self) -> None:
        self._faults: Faults | None = None
        self._fault_host: LocalHost | None = None
        self._node: Broker | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._clock: MovedClock | None = None
        self._idle_clients: list[Client] = []
        self._error: BaseException | None = None
        """The error that ended it, or kept it from starting."""

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        raise NotImplementedError

    @property
    def faults(self) -> Faults:
        """The faults of this broker; see :class:`kbroker.testing.faults.Faults`."""
        if self._faults is None:
            from kbroker.testing.faults import Faults
            from kbroker.testing.local_faults import LocalHost

            self._fault_host = LocalHost(self)
            self._faults = Faults(self._fault_host)
        return self._faults

    def faults_of(self, node: int) -> Faults:
        self._check_node(node)
        return self.faults

    def add_node(self) -> NodeSeen:
        raise CannotNow("this is one node, and no cluster: start one with kbroker up --control")

    def change_node(self, node: Index, action: NodeAction) -> NodeSeen:
        self._check_node(node)
        raise CannotNow(f"this is one node, and no cluster: {action} is for its process itself")

    def _check_node(self, node: int) -> None:
        own = self.in_broker(lambda broker: broker.config.node_id)
        if node != own:
            raise NotThere(f"there is no node {node}, but node {own} alone")

    def in_broker(self, function: Callable[[Broker], T]) -> T:
        """Run ``function(node)`` in the broker's thread, between two of its steps; what it returns or raises.

        RuntimeError when the broker is down.
        """

        async def call(node: Broker) -> T:
            return function(node)

        return self.in_broker_async(call)

    def in_broker_async(self, function: Callable[[Broker], Awaitable[T]]) -> T:
        """Call a coroutine function (of Trio) in the broker's thread (see :meth:`in_broker`)."""
        import trio

        if self._node is None or self._token is None or not self.is_running:
            raise RuntimeError("the broker is not running") from self._error
        try:
            return trio.from_thread.run(function, self._node, trio_token=self._token)
        except trio.RunFinishedError:
            raise RuntimeError("the broker is not running") from None

    # --- the clock

    def advance(self, seconds: Seconds) -> None:
        """Move the broker's clocks ahead; return once it has done what was due by then. ``ValueError``: back in time.

        Time goes on from there at its own pace, also after a restart, unless the clock stands (:meth:`stop_clock`). All
        of the broker's times are moved: sessions, locks, transactions, retention, time-outs of requests. Clients, and
        what they wait for, are not.
        """
        if seconds < 0:
            raise ValueError("the clocks of a broker go ahead only")
        from kbroker.testing.clock import settle

        clock = self._moved_clock()

        async def advance(node: Broker) -> None:
            clock.move(seconds)
            await settle()

        self.in_broker_async(advance)

    def stop_clock(self) -> None:
        clock = self._moved_clock()
        self.in_broker(lambda node: clock.stop())

    def start_clock(self) -> None:
        clock = self._moved_clock()
        self.in_broker(lambda node: clock.go_on())

    @property
    def clock(self) -> ClockSeen:
        return self._moved_clock().seen()

    def _moved_clock(self) -> MovedClock:
        if self._clock is None:
            raise RuntimeError("the broker is not running")
        return self._clock

    # --- asking

    @contextmanager
    def client(self, timeout: float = 30.0) -> Iterator[Client]:
        """A small synchronous client that may do everything."""
        from kbroker.client import Client
        from kbroker.testing.link import OWN_CLIENT_ID

        if not self.is_running:
            raise RuntimeError("the broker is not running") from self._error
        try:
            client = self._idle_clients.pop()
        except IndexError:
            client = Client(self.bootstrap_servers, client_id=OWN_CLIENT_ID, security=self._own_security())
        client.timeout = timeout
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._idle_clients.append(client)

    def _close_clients(self) -> None:
        while self._idle_clients:
            self._idle_clients.pop().close()

    def record_requests(self, on: bool = True) -> None:
        log = self.request_log
        assert self.faults is not None and self._fault_host is not None
        host = self._fault_host
        log.clear()
        host.observe(log.add if on else None)
        log.is_on = on

    @property
    def nodes_seen(self) -> list[NodeSeen]:
        if not self.is_running or self._node is None:
            return []
        return [NodeSeen(self._node.config.node_id, "running", self.bootstrap_servers)]

    def _reset_nodes(self, timeout: float) -> None:
        self.start_clock()
