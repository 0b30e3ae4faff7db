"""One listener of a node: accepts connections, and keeps their number and their silence within bounds.

One housekeeper per listener looks at its connections every few seconds, so that a connection itself needs no timer.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from kbroker.handlers.registration import Registration
from kbroker.node.serving.admission import AdmissionRefused, Admitted
from kbroker.node.serving.connection import Connection
from kbroker.node.serving.memory_budget import MemoryBudget
from kbroker.node.serving.refusal_log import RefusalLog
from kbroker.runtime.round import Turns
from kbroker.security.shown import shown
from kbroker.value_types import NamedTuple
from kbroker.wire.buffer_pool import BufferPool
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.handlers.services.quotas import ConnectionRates
    from kbroker.node.serving.admission import Admission
    from kbroker.node.serving.observed_requests import RequestObservers
    from kbroker.runtime.env import Poller, Stream, StreamListener

logger = logging.getLogger(__name__)

login_logger = logging.getLogger("kbroker.authentication")
"""Has each client that is not let in, one by one, at DEBUG."""

ACCEPT_AGAIN_SECONDS = 0.1
"""After the system could not give a connection."""

MAX_KEPT_OUT = 256
"""Connections of addresses with too many that are not closed at once; each takes an open file meanwhile."""

_GONE_ALREADY = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)
"""The connection ended before it was accepted; the next one may be there."""


Ending = tuple[tuple[bool, bool, float, int], Callable[[], None], str]
"""A connection that may be ended: the least is the first, then the call that ends it, then its peer."""


class ConnectionLimits(NamedTuple):
    """Limits of one client, and of all together. Times are seconds.

    ``handshake`` bounds all of a client's admission, TLS and SASL together.
    ``first_frame`` and ``frame`` bound how long a request may take to arrive; a frame that keeps arriving at
    ``min_bytes_per_second`` or more may take longer.
    """

    max_connections: int
    max_connections_per_ip: int
    per_ip_overrides: Mapping[str, int]
    max_idle: float
    per_listener: Mapping[str, int] = {}
    """Limits of single listeners (KIP-402)."""
    preferred: str | None = None
    """The brokers' own listener, if clients have another: ``max_connections`` does not hold for it."""
    possible: int = 1 << 31
    """Connections that there are open files for."""
    handshake: float = 10.0
    first_frame: float = 30.0
    frame: float = 30.0
    min_bytes_per_second: int = 1024
    max_frame_bytes: int = 100 << 20


class ConnectionQuota:
    """The node's connections, in all, by listener and by address (Kafka's ``ConnectionQuotas``).

    Where ``max.connections`` is reached clients wait, and those of the preferred listener take the place of others.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.total = 0
        self.by_address: Counter[str] = Counter()
        self.by_listener: Counter[str] = Counter()
        self.listeners: list[Listener] = []
        """Those that may have to give up a connection."""
        self._more_room = trio.Event()
        self.turns = Turns()
        """Those of the connections of all listeners."""

    @property
    def limits(self) -> ConnectionLimits:
        """Those that hold now. Where ``max.connections`` gets narrower, the connections that are silent are closed."""
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._wake()
        self._close_excess()

    def refusal(self, address: str) -> str | None:
        """The reason why a connection from ``address`` may not be had now, or ``None``."""
        limits = self._limits
        if self.total >= limits.possible:
            return f"there are open files for {limits.possible} connections"
        most = limits.per_ip_overrides.get(address, limits.max_connections_per_ip)
        if self.by_address[address] >= most:
            return f"max.connections.per.ip ({most}) is reached"
        return None

    def lack(self, listener: str) -> str | None:
        """The reason why clients of a listener have to wait now, or ``None``."""
        limits = self._limits
        of_listener = limits.per_listener.get(listener)
        if of_listener is not None and self.by_listener[listener] >= of_listener:
            return f"max.connections of listener {listener} ({of_listener}) is reached"
        if self.total >= limits.max_connections and listener != limits.preferred:
            return f"max.connections ({limits.max_connections}) is reached"
        return None

    async def wait_for_room(self, listener: str) -> None:
        """Wait until a client of a listener may be had."""
        while self.lack(listener) is not None:
            await self._more_room.wait()

    def add(self, address: str, listener: str) -> None:
        """Count one in."""
        self.total += 1
        self.by_listener[listener] += 1
        self.by_address[address] += 1
        if self.total > self._limits.max_connections:
            self._close_excess()

    def remove(self, address: str, listener: str) -> None:
        """Count one out."""
        self.total -= 1
        self.by_listener[listener] -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]
        self._wake()

    def _wake(self) -> None:
        self._more_room.set()
        self._more_room = trio.Event()

    def _close_excess(self) -> None:
        """Close as many connections as there are too many: of clients that are not let in yet, the first of them first,
        and of those that have been silent for longest."""
        excess = self.total - self._limits.max_connections
        if excess <= 0:
            return
        found: list[Ending] = []
        for listener in self.listeners:
            excess -= listener.closing_count
            if listener.name != self._limits.preferred:
                found += listener.by_silence()
        found.sort(key=lambda each: each[0])
        for _, end, peer in found[: max(0, excess)]:
            logger.info("closing connection from %s: max.connections is exceeded", peer)
            end()


class _LastVisit:
    """A connection's counters at the housekeeper's last visit."""

    __slots__ = ("active_at", "bytes_received", "frame_since", "frames")

    def __init__(self, now: float) -> None:
        self.active_at = now
        self.frame_since = now
        self.frames = 0
        self.bytes_received = 0


def _is_active(connection: Connection, seen: _LastVisit) -> bool:
    """Whether bytes have moved since the housekeeper's last visit."""
    return connection.active or connection.bytes_received != seen.bytes_received


class Listener:
    """Serves one bound port until it is cancelled."""

    def __init__(
        self,
        name: str,
        stream_listener: StreamListener,
        *,
        services: Services,
        table: Mapping[int, Registration],
        is_controller: bool,
        quota: ConnectionQuota,
        budget: MemoryBudget,
        admission: Admission | None = None,
        observers: RequestObservers | None = None,
    ) -> None:
        """Without an ``admission`` every client is let in, as ANONYMOUS."""
        self.name = name
        self.address = stream_listener.address
        self._listener = stream_listener
        self._services = services
        self._table = dict(table)
        self.is_controller = is_controller
        self.quota = quota
        self._budget = budget
        self.admission = admission
        """Lets in who connects from now on."""
        self._scope = trio.CancelScope()
        self._observers = observers
        self.admitted = 0
        """Connections that were let in, ever."""
        self._buffers = BufferPool()
        self.connections: dict[Connection, _LastVisit] = {}
        """Those that were let in and have not ended."""
        self._coming: dict[trio.CancelScope, tuple[float, str]] = {}
        """Clients that are not let in yet: since when, and where from."""
        self._some = trio.Event()
        self._sweep_seconds = services.env.budgets.sweep_seconds
        self.refusals = RefusalLog(name, lambda level, text: logger.log(level, "%s", text))
        self._kept_out = 0
        self._poller: Poller | None = None

    @property
    def closing_count(self) -> int:
        """Connections that are being closed."""
        coming = sum(scope.cancel_called for scope in self._coming)
        return coming + sum(connection.is_ending for connection in self.connections)

    def by_silence(self) -> list[Ending]:
        """Connections by what ends them, and their peers; the least is to be closed first.

        It is that of a client that is not let in yet, or of the one that has been silent for longest. Kafka goes by the
        silence alone (``Selector.lowestPriorityChannel``): there whoever only connects can end those that work. Those
        that are being closed are left out.
        """
        found: list[Ending] = [
            ((False, False, since, id(scope)), scope.cancel, address)
            for scope, (since, address) in self._coming.items()
            if not scope.cancel_called
        ]
        found += [
            ((True, _is_active(connection, seen), seen.active_at, id(connection)), connection.end, str(connection.peer))
            for connection, seen in self.connections.items()
            if not connection.is_ending
        ]
        return found

    @property
    def connection_count(self) -> int:
        """Connections open now."""
        return len(self.connections)

    def clients(self) -> Counter[tuple[str, str]]:
        """Open connections by name and version of the client's software (KIP-511)."""
        return Counter((each.client_software_name, each.client_software_version) for each in self.connections)

    def registration(self, api_key: int) -> Registration | None:
        """By what an API is served here; None if it is not."""
        return self._table.get(api_key)

    def replace_handler(self, registration: Registration) -> None:
        """Serve an API otherwise, from each connection's next request on (``kbroker.testing``)."""
        self._table[registration.api_key] = registration

    async def serve(self) -> None:
        """Accept and serve, until ``end``; cancelling ends every connection."""
        try:
            with self._scope:
                await self._serve_all()
        finally:
            self._listener.close()

    def end(self) -> None:
        """Give the port back, now: another listener may be about to take it. Every connection ends."""
        self._scope.cancel()
        self._listener.close()

    async def _serve_all(self) -> None:
        async with trio.open_nursery() as nursery:
            self._poller = self._services.env.network.poller()
            if self.admission is not None:
                self._poller = self.admission.poller(self._poller)
            if self._poller is not None:
                self._poller.round.turns = self.quota.turns
                nursery.start_soon(self._poller.run)
            nursery.start_soon(self._housekeep)
            try:
                await self._accept_all(nursery)
            finally:
                for connection in tuple(self.connections):
                    connection.end()  # many have no task that the nursery could cancel

    async def _accept_all(self, nursery: trio.Nursery) -> None:
        while True:
            if self.admission is None:
                await trio.lowlevel.checkpoint()  # of many that come at once, one is let in at a turn of the loop
            else:
                await self.admission.may_begin()
            try:
                stream = await self._listener.accept()
            except OSError as error:
                if error.errno not in _GONE_ALREADY:
                    # Too many files, a firewall's EPERM, a network that is down: as in Kafka's Acceptor,
                    # nothing ends a listener. It may be told again at once, so others get their turn.
                    self._log_refusal("this port", "", f"cannot accept connections: {error.strerror or error}")
                    await trio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            if self._poller is not None:
                self._poller.serve_readable()
            rates = self._services.quotas.connections
            if rates is not None and not await self._comes_slowly(stream, rates, nursery):
                continue
            lack = self.quota.lack(self.name)
            if lack is not None:
                await self._wait_for_room(stream, lack)
            refusal = self.quota.refusal(stream.peer[0])
            if refusal is not None:
                address = stream.peer[0]
                self._log_refusal(address, "quota", f"refused a connection from {address}: {refusal}")
                stream.close()
                continue
            self.quota.add(stream.peer[0], self.name)
            if self.admission is None:
                self._connection(Admitted(stream), nursery).begin()
            else:
                nursery.start_soon(self._let_in, stream, self.admission, nursery)

    async def _wait_for_room(self, stream: Stream, lack: str) -> None:
        """Have an accepted client wait for room, as Kafka's acceptor does; those after it stay with the system."""
        self._log_refusal("this port", "full", f"clients wait to be accepted: {lack}")
        try:
            await self.quota.wait_for_room(self.name)
        except BaseException:
            stream.close()
            raise

    def _log_refusal(self, address: str, kind: str, text: str, level: int = logging.WARNING) -> None:
        self.refusals.add(trio.current_time(), address, kind, text, level)
        self._some.set()  # the housekeeper tells how many there were

    async def _comes_slowly(self, stream: Stream, rates: ConnectionRates, nursery: trio.Nursery) -> bool:
        """Wait until another connection may come. False if none may from this address: it is closed soon."""
        wait_ms = rates.wait_ms(self.name)
        if wait_ms:
            try:
                await trio.sleep(wait_ms / 1000)
            except BaseException:
                stream.close()
                raise
        refusal_ms = rates.refusal_ms(self.name, stream.peer[0])
        if refusal_ms:
            address = stream.peer[0]
            text = f"refused a connection from {address}: connection_creation_rate is exceeded"
            self._log_refusal(address, "rate", text)
            if self._kept_out < MAX_KEPT_OUT:
                self._kept_out += 1
                nursery.start_soon(self._keep_out, stream, refusal_ms / 1000)
            else:
                stream.close()
        return not refusal_ms

    async def _keep_out(self, stream: Stream, seconds: float) -> None:
        """Close a connection after a while, so that the client does not come back at once (KIP-612)."""
        try:
            await trio.sleep(seconds)
        finally:
            self._kept_out -= 1
            stream.close()

    async def _let_in(self, stream: Stream, admission: Admission, nursery: trio.Nursery) -> None:
        """A client that is counted in: its admission, and its connection until that has ended."""
        admitted = None
        try:
            admitted = await self._admit(stream, admission)
        finally:
            if admitted is None:
                self.quota.remove(stream.peer[0], self.name)
        if admitted is not None:
            connection = self._connection(admitted, nursery)
            if admitted.keeper is not None:
                nursery.start_soon(admitted.keeper(connection))
            await connection.serve()

    async def _admit(self, stream: Stream, admission: Admission) -> Admitted | None:
        """The connection once its client is let in; None, and it is closed, if it is not, or takes too long."""
        address = stream.peer[0]
        limit = self.quota.limits.handshake
        scope = trio.CancelScope()
        began = trio.current_time()
        self._coming[scope] = (began, address)
        scope.deadline = began + limit
        try:
            with scope:
                admitted = await admission.admit(stream, scope)
                if not scope.cancel_called:
                    return admitted
                admitted.stream.close()  # it was to make room before it could hear of that
            if trio.current_time() >= scope.deadline:  # else it has made room for another
                self._log_refusal(address, "time", f"{address} did not authenticate in {limit:g} s")
        except (AdmissionRefused, WireError) as error:
            login_logger.debug("%s: refused a connection from %s: %s", self.name, address, shown(str(error)))
            text = f"refused a connection from {address}: {error}"
            kind = error.kind if isinstance(error, AdmissionRefused) else AdmissionRefused.kind
            self._log_refusal(address, kind, text, logging.INFO)
        except (OSError, trio.ClosedResourceError):
            pass  # the peer is gone, which is no news
        except Exception:
            logger.exception("%s: refused a connection from %s: internal error", self.name, stream.peer[0])
        except BaseException:
            stream.close()
            raise
        finally:
            del self._coming[scope]
        stream.close()
        return None

    def _connection(self, admitted: Admitted, nursery: trio.Nursery) -> Connection:
        """The connection of a client that is let in, counted among the others until it is closed."""
        connection = Connection(
            admitted.stream,
            principal=admitted.principal,
            session=admitted.session,
            services=self._services,
            table=self._table,
            listener_name=self.name,
            is_controller=self.is_controller,
            max_frame_bytes=self.quota.limits.max_frame_bytes,
            start_soon=nursery.start_soon,
            budget=self._budget,
            buffers=self._buffers,
            poller=self._poller,
            refusals=self.refusals,
            turns=self.quota.turns,
            observers=self._observers,
        )
        self.admitted += 1
        self.connections[connection] = _LastVisit(trio.current_time())
        connection.when_closed.append(partial(self._closed, connection, admitted.stream.peer[0]))
        self._some.set()
        return connection

    def _closed(self, connection: Connection, address: str) -> None:
        del self.connections[connection]
        self.quota.remove(address, self.name)

    async def _housekeep(self) -> None:
        while True:
            if not self.connections and not self.refusals.has_untold:
                self._some = trio.Event()
                await self._some.wait()  # an idle node wakes for nothing
            await trio.sleep(self._sweep_seconds)
            self.sweep(trio.current_time())

    def sweep(self, now: float) -> None:
        """End connections that have been silent, or slow with a request, for too long; tell of refusals."""
        limits = self.quota.limits
        self.refusals.flush(now)
        for connection, seen in list(self.connections.items()):
            is_active, received = _is_active(connection, seen), connection.bytes_received - seen.bytes_received
            seen.bytes_received = connection.bytes_received
            if is_active:
                connection.active = False
                seen.active_at = now
            elif now - seen.active_at > limits.max_idle:
                logger.debug("closing connection from %s: idle", connection.peer)
                connection.end()
                continue
            else:
                connection.trim()
            connection.look()
            if connection.frames != seen.frames or connection.is_muted:
                seen.frames = connection.frames
                seen.frame_since = now
            elif connection.frames == 0 or connection.in_frame:
                allowed = limits.frame if connection.frames else limits.first_frame
                slow = received < limits.min_bytes_per_second * self._sweep_seconds
                if now - seen.frame_since > allowed and slow:
                    logger.info("closing connection from %s: no complete request in %g s", connection.peer, allowed)
                    connection.end()
            else:
                seen.frame_since = now
