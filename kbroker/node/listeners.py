"""A node's listeners together: bound before anything else, opened one after another, limited as a whole.

Connections are refused at first, as by Apache Kafka: a client goes on to another node at once, and a controller knows
that the broker's last life is over. Controllers' listeners take connections once the node's parts are there, all others
once the broker is registered, its logs are open, and it is about to be unfenced: a node that finds no quorum keeps no
client waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import trio

from kbroker.config import BrokerConfig, InvalidConfig, Listener
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.node.serving.listener import ConnectionLimits, ConnectionQuota
from kbroker.node.serving.listener import Listener as ListenerServer
from kbroker.node.serving.memory_budget import MemoryBudget
from kbroker.raft_metadata.image import Endpoint, MetadataDelta, MetadataImage, ResourceType
from kbroker.runtime.bound_ports import ALL_ADDRESSES, canonical_host_name
from kbroker.security.protocol import SecurityProtocol

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
    from kbroker.node.security.security import NodeSecurity
    from kbroker.node.serving.observed_requests import RequestObservers
    from kbroker.runtime.env import Network, StreamListener

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = "max.connections"
LISTENER_PREFIX = "listener.name."

DEFAULT_REQUEST_MEMORY = 512 << 20
"""Bytes of incomplete requests that all connections together may hold, when ``queued.max.request.bytes`` is -1."""

OTHER_FILES = 64
"""Open files that are neither logs nor clients: other nodes, processes, pipes, files that are written whole."""

FEWEST_OF_CONTROLLERS = 32
"""Connections of other nodes to a controller that is a broker, too: each needs a few."""


class Listeners:
    """The configured listeners, from ``bind``, over ``listen`` and ``open``, to ``close``."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicBrokerConfig,
        security: NodeSecurity,
        observers: RequestObservers | None = None,
    ) -> None:
        self._config = config
        self._dynamic_config = dynamic_config
        self._observers = observers
        self._security = security
        self.ports: dict[str, tuple[str, int]] = {}
        """The address that each listener is bound to, by listener name."""
        self.servers: list[ListenerServer] = []
        """Those that are open."""
        self._quotas: dict[bool, ConnectionQuota] = {}
        """Those of controllers' listeners (True), and of all others."""
        self._bound: dict[str, StreamListener] = {}
        self._asked: dict[str, Listener] = {}
        """Each of the bound ones as the properties have it."""
        self._budget: MemoryBudget | None = None
        self._changed = trio.Event()
        self._host_name = ""
        """This host's, if it is advertised."""

    async def bind(self, network: Network) -> None:
        """Take the addresses. ``FatalError`` if one cannot be had."""
        advertised = (*self._config.advertised_listeners, *self._config.advertised_controller_listeners)
        if any(listener.host in ALL_ADDRESSES for listener in advertised):
            self._host_name = await trio.to_thread.run_sync(canonical_host_name)
        for listener in self._config.listeners:
            stream_listener = await network.bind(listener.host, listener.port)
            self._keep(listener, stream_listener)

    def _keep(self, listener: Listener, stream_listener: StreamListener) -> None:
        self._asked[listener.name] = listener
        self._bound[listener.name] = stream_listener
        self.ports[listener.name] = stream_listener.address

    def listen(self, *, is_controller: bool) -> None:
        """Let whoever connects to controllers' listeners, or to all others, wait until they are opened.

        ``FatalError`` if that cannot be.
        """
        for name, stream_listener in self._bound.items():
            if (name in self._config.controller_listener_names) == is_controller:
                stream_listener.listen()

    def endpoints(self, listeners: Iterable[Listener]) -> list[Endpoint]:
        """The addresses that clients and nodes are told: advertised ones, with the port that was bound for port 0, and
        with this host's name for all addresses (Kafka's ``ListenerInfo``)."""
        result = []
        for listener in listeners:
            host, port = listener.host, listener.port
            if port == 0 and listener.name in self.ports:
                port = self.ports[listener.name][1]
            if host in ALL_ADDRESSES:
                host = self._host_name
            result.append(Endpoint(listener.name, host, port, SecurityProtocol[listener.security_protocol]))
        return result

    def open(
        self,
        services: Services,
        nursery: trio.Nursery,
        *,
        only: Collection[str] | None = None,
        serve: Callable[[ListenerServer], Awaitable[None]] = ListenerServer.serve,
    ) -> None:
        """Accept connections on all listeners that are not open yet, or on those named in ``only``.

        ``serve`` runs each in ``nursery``. The limits hold for the connections of controllers' listeners apart from all
        others: clients keep no broker away from its controller.
        """
        config = self._config
        memory = config.queued_max_request_bytes
        budget = self._budget or MemoryBudget(memory if memory > 0 else DEFAULT_REQUEST_MEMORY)
        in_force = self._dynamic_config.of_listeners()
        self._follow(in_force, services)
        configured = {listener.name: listener for listener in (*config.listeners, *in_force.listeners)}
        opened = {server.name for server in self.servers}
        for name, stream_listener in self._bound.items():
            if name in opened or (only is not None and name not in only):
                continue
            is_controller = name in config.controller_listener_names
            if is_controller not in self._quotas:
                self._quotas[is_controller] = ConnectionQuota(self._limits(is_controller=is_controller))
            quota = self._quotas[is_controller]
            server = ListenerServer(
                name,
                stream_listener,
                services=services,
                table=registrations(
                    CONTROLLER if is_controller else BROKER, unstable=config.unstable_api_versions_enable
                ),
                is_controller=is_controller,
                quota=quota,
                budget=budget,
                admission=self._security.admission(configured[name], services),
                observers=self._observers,
            )
            self.servers.append(server)
            quota.listeners.append(server)
            nursery.start_soon(serve, server)
        if only is None:
            self._budget = budget

    async def run(self, network: Network, services: Services, nursery: trio.Nursery) -> None:
        """Follow what is set at run time of the listeners: open others, close some, let clients in by other rules."""
        while True:
            config = self._dynamic_config.of_listeners()
            names = {listener.name for listener in config.listeners}
            for server in tuple(self.servers):
                if server.name not in names:
                    self._remove(server)
            self._follow(config, services)
            for listener in config.listeners:
                if listener.name not in self._bound:
                    await self._add(listener, config, network)
                elif self._asked[listener.name] != listener:
                    logger.warning("listener %s keeps the address that it has: only its name counts", listener.name)
            self.open(services, nursery)
            await self._changed.wait()
            self._changed = trio.Event()

    def _follow(self, config: BrokerConfig, services: Services) -> None:
        """Have who connects from now on let in by the properties in force."""
        known = {listener.name: listener for listener in config.listeners}
        changed = self._security.follow(config)
        for server in self.servers:
            if server.name in changed:
                server.admission = self._security.admission(known[server.name], services)

    def _remove(self, server: ListenerServer) -> None:
        server.end()
        self.servers.remove(server)
        self._quotas[server.is_controller].listeners.remove(server)
        self._security.drop(server.name)
        del self._bound[server.name], self.ports[server.name]
        logger.info("listener %s is closed", server.name)

    async def _add(self, listener: Listener, config: BrokerConfig, network: Network) -> None:
        try:
            self._security.add(listener, config)
            stream_listener = await network.bind(listener.host, listener.port)
            stream_listener.listen()
        except FatalError as error:
            self._security.drop(listener.name)
            logger.error("listener %s, which was added at run time, cannot be opened: %s", listener.name, error)
            return
        self._keep(listener, stream_listener)
        logger.info("listener %s is opened", listener)

    async def check_changes(self, changes: Mapping[str, tuple[int, str]]) -> None:
        """Judge changes of properties that only this node can judge; ``ApiError`` INVALID_REQUEST if they cannot be.

        Each has the operation and the value of IncrementalAlterConfigs.
        """
        from kbroker.config.reconfiguration import check_listeners

        after = self._dynamic_config.check(changes)
        if after is None:
            return
        try:
            check_listeners(self._config, self._dynamic_config.of_listeners(), after)
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
        await self._security.check(after)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Hold further connections to the limits that were set at run time (KIP-226, KIP-402), and wake ``run``."""
        if all(resource.type != ResourceType.BROKER for resource in delta.changed_configs):
            return
        self._changed.set()
        for is_controller, quota in self._quotas.items():
            quota.limits = self._limits(is_controller=is_controller)

    def _limits(self, *, is_controller: bool) -> ConnectionLimits:
        """The limits that hold now."""
        config = self._dynamic_config.with_prefix(MAX_CONNECTIONS)
        of_listeners = self._dynamic_config.with_prefix(LISTENER_PREFIX)
        bounds = {
            listener.name: of_listeners.values.get(f"{LISTENER_PREFIX}{listener.name.lower()}.{MAX_CONNECTIONS}")
            for listener in self._dynamic_config.of_listeners().listeners
        }
        return ConnectionLimits(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            per_ip_overrides=config.max_connections_per_ip_overrides,
            max_idle=config.connections_max_idle_ms / 1000,
            per_listener={name: bound for name, bound in bounds.items() if bound is not None},
            preferred=config.inter_broker_listener_name if len(config.broker_listeners) > 1 else None,
            possible=possible_connections(self._config, is_controller),
            max_frame_bytes=config.socket_request_max_bytes,
        )

    def close(self) -> None:
        """Give the addresses back."""
        for stream_listener in self._bound.values():
            stream_listener.close()


def possible_connections(config: BrokerConfig, is_controller: bool, by_files: int | None = None) -> int:
    """Returns how many connections there are open files for: few controllers', of a node with listeners of both kinds.

    ``by_files`` is how many there are for all; None: as the system has it.
    """
    possible = _connections_by_file_limit() if by_files is None else by_files
    if not (config.is_controller and config.is_broker):
        return possible
    of_controllers = max(FEWEST_OF_CONTROLLERS, possible // 4)
    return of_controllers if is_controller else possible - of_controllers


def _connections_by_file_limit() -> int:
    """Connections that leave file descriptors for all else. The logs have half of them: three eighths are for segments
    (``LogManager.open``), a third as many for indexes (``OpenFiles``).

    One must be left for a log at any time: a log that cannot be opened is taken for a disk that fails.
    """
    try:
        import resource
    except ImportError:  # pragma: no cover - not a POSIX system
        return 1 << 31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 31 if soft == resource.RLIM_INFINITY else max(64, soft // 2 - min(OTHER_FILES, soft // 8))
