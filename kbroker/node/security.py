"""A node's security: the admission of each listener, and the networks by which it reaches other nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config.definition import InvalidConfig
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.admission import Admission, AdmissionStep
from kbroker.security.protocol import SecurityProtocol
from kbroker.security.shown import shown

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig, Listener
    from kbroker.env import Env, Network
    from kbroker.handlers.context import Services
    from kbroker.node.admission_turns import AdmissionTurns
    from kbroker.node.handshake_thread import HandshakeThread
    from kbroker.node.sasl.setup import ListenerSasl
    from kbroker.node.secure_network import ConnectionStep
    from kbroker.node.tls import ListenerTls
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)

_BUILDER = "principal.builder.class"

LOOK_SECONDS = 10.0
"""The time between two looks at the files of TLS stores."""


class NodeSecurity:
    """The steps that the properties ask for. ``FatalError`` if a property of security cannot be followed."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self._config = config
        self._env = env
        self._tls: dict[str, ListenerTls] = {}
        self._sasl: dict[str, ListenerSasl] = {}
        self._scratch = bytearray()
        self._handshakes: HandshakeThread | None = None
        """The steps of clients' handshakes have one thread: no storm of them takes the processors of the others."""
        self._turns: AdmissionTurns | None = None
        self._properties_changed = trio.Event()
        self._checking = trio.Lock()
        """One request's stores are read at a time: a file system that hangs holds one thread, not all of them."""
        brokers = config.inter_broker_listener_name if config.is_broker else ""
        controllers = config.controller_listener_names[0] if config.controller_listener_names else ""
        self._make_tls({brokers, controllers})
        self._make_sasl()
        self._builders: dict[str, tuple[Any, str]] = {}
        """By listener: the principal builder in Python, and its name in the node's file."""
        self._load_builders()
        self.to_brokers: Network = self._network(brokers, "sasl.mechanism.inter.broker.protocol")
        """For connections to other brokers: over the listener of ``inter.broker.listener.name``."""
        self.to_controllers: Network = self._network(controllers, "sasl.mechanism.controller.protocol")
        """For connections to controllers: over the first of ``controller.listener.names``."""

    def _protocol(self, listener_name: str) -> SecurityProtocol:
        return SecurityProtocol[self._config.listener_security_protocol_map.get(listener_name, "PLAINTEXT")]

    def _make_tls(self, of_nodes: set[str]) -> None:
        """Read the stores of each listener with TLS: the node's own, and those by which it reaches other nodes."""
        own = {listener.name for listener in self._config.listeners}
        for name in sorted(own | of_nodes):
            if self._protocol(name).has_tls:
                try:
                    from kbroker.node.tls import ListenerTls, scratch  # imports ssl and cryptography
                except InvalidConfig as error:
                    raise FatalError(error.message) from None

                self._tls[name] = ListenerTls(name, self._config, serves=name in own, connects=name in of_nodes)
                self._scratch = self._scratch or scratch()

    def _make_sasl(self) -> None:
        """Read which mechanisms each of the node's listeners with SASL has, and by which users."""
        for listener in self._config.listeners:
            if self._protocol(listener.name).has_sasl:
                from kbroker.node.sasl.setup import ListenerSasl

                self._sasl[listener.name] = ListenerSasl(self._config, listener.name)
        if self._sasl:
            from kbroker.node.sasl.setup import warn_without_effect

            warn_without_effect(self._config)  # once, however many listeners there are

    def admission(self, listener: Listener, services: Services) -> Admission | None:
        """The admission of one of the node's listeners; None if all are let in."""
        steps: list[AdmissionStep] = []
        wrap_poller = wait_for_room = None
        tls = self._tls.get(listener.name)
        if tls is not None:
            from kbroker.node.handshake_thread import HandshakeThread
            from kbroker.node.tls import TlsAdmission
            from kbroker.node.tls_poller import PendingPoller

            self._handshakes = self._handshakes or HandshakeThread()
            wait_for_room = self._handshakes.wait_for_room
            steps.append(TlsAdmission(tls, self._scratch, self._handshakes))
            wrap_poller = PendingPoller
        if listener.name in self._sasl:
            is_controller = listener.name in self._config.controller_listener_names
            steps.append(self._sasl[listener.name].admission(services, is_controller=is_controller))
        builder = self._principal_builder(listener)
        if builder is not None:
            steps.append(builder)
        if not steps:
            return None
        from kbroker.node.admission_turns import AdmissionTurns

        self._turns = self._turns or AdmissionTurns()
        return Admission(steps, wrap_poller, turns=self._turns, wait_for_room=wait_for_room)

    def _principal_builder(self, listener: Listener) -> AdmissionStep | None:
        """The step of a principal builder in Python, by the node's own file; None without one."""
        builder = self._builders.get(listener.name)
        if builder is None:
            return None
        from kbroker.node.rules.principals import PrincipalStep

        return PrincipalStep(*builder, listener.name, listener.security_protocol)

    def _load_builders(self) -> None:
        """Load the principal builders that the node's own file names, and no others."""
        values = self._config.raw
        for listener in self._config.listeners if any(name.endswith(_BUILDER) for name in values) else ():
            prefixed = f"listener.name.{listener.name.lower()}.{_BUILDER}"
            name = prefixed if prefixed in values else _BUILDER
            value = values.get(name, "").strip()
            if value.startswith("python:"):
                from kbroker.rules.loading import load

                self._builders[listener.name] = load(name, value, "build"), value

    def _network(self, listener_name: str, mechanism_property: str) -> Network:
        steps: list[ConnectionStep] = []
        tls = self._tls.get(listener_name)
        if tls is not None:
            from kbroker.node.tls import TlsConnect

            steps.append(TlsConnect(tls, self._scratch, self._env.now))
        if self._protocol(listener_name).has_sasl:
            from kbroker.node.sasl.setup import connection_step

            steps.append(connection_step(self._config, listener_name, mechanism_property))
        if not steps:
            return self._env.network
        from kbroker.node.secure_network import SecureNetwork

        return SecureNetwork(self._env.network, steps)

    # --- while the node runs

    def start(self, nursery: trio.Nursery) -> None:
        """Start what clients need who are to be let in, nodes among them: before a listener is open."""
        for sasl in self._sasl.values():
            for task in sasl.tasks:
                nursery.start_soon(task)

    @property
    def has_tasks(self) -> bool:
        """Whether ``run`` has anything to do."""
        return bool(self._tls)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Hear of properties that may have been set."""
        if delta.changed_configs:
            self._properties_changed.set()

    async def run(
        self, config: Callable[[], BrokerConfig], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow the files of TLS stores and the properties set at run time, and warn of what expires.

        Started once the present state is in force. ``config`` gives the node's properties with those of
        ``listener.name.`` that were set at run time.
        """
        started = False
        while True:
            self._properties_changed = trio.Event()
            await self.look(config())
            if not started:
                task_status.started()
                started = True
            with trio.move_on_after(LOOK_SECONDS):
                await self._properties_changed.wait()

    async def look(self, config: BrokerConfig) -> None:
        """Read what has changed of the stores, now, and warn of what expires."""
        for tls in self._tls.values():
            await self._refresh(tls, config)
            tls.warn_of_expiry(self._env.wall_clock_ms())

    async def _refresh(self, tls: ListenerTls, config: BrokerConfig) -> None:
        try:
            if await self._env.run_blocking(tls.refresh, config):
                logger.info("listener %s has read its TLS stores again", tls.listener)
        except InvalidConfig as error:
            problem = error.message
            logger.error("listener %s keeps its TLS stores, the new ones cannot be used: %s", tls.listener, problem)

    async def check_changes(self, config: BrokerConfig, changes: Mapping[str, str | None]) -> None:
        """Whether the listeners can go on with other properties; ``ApiError`` INVALID_REQUEST if not.

        ``config`` is in force now; ``changes`` are properties with a listener's prefix, None for one that is removed.
        """
        raw = {**config.raw, **{name: value for name, value in changes.items() if value is not None}}
        for name in [name for name, value in changes.items() if value is None]:
            raw.pop(name, None)
            if name in self._config.raw:
                raw[name] = self._config.raw[name]

        def check() -> None:
            new = type(config).from_properties(raw)
            for tls in self._tls.values():
                tls.check(new)

        try:
            async with self._checking:
                await self._env.run_blocking(check)
        except InvalidConfig as error:
            to_client = getattr(error, "to_client", None)  # a store's: its class is not imported without TLS
            if to_client is not None:
                logger.warning("TLS stores were not changed by request: %s", shown(error.message))
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"The listeners cannot have these stores: {to_client}"
                ) from None
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The listeners cannot have these stores: {error.message}"
            ) from None
        except FatalError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
