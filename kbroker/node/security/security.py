"""A node's security: the admission of each listener, and the networks by which it reaches other nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config.config_key import InvalidConfig
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.serving.admission import Admission, AdmissionStep
from kbroker.runtime.turns import StepTurns
from kbroker.security.protocol import SecurityProtocol
from kbroker.security.shown import shown

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig, Listener
    from kbroker.handlers.common.context import Services
    from kbroker.node.security.handshake_thread import HandshakeThread
    from kbroker.node.security.sasl.setup import ListenerSasl
    from kbroker.node.security.secure_network import ConnectionStep
    from kbroker.node.security.tls import ListenerTls
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
    from kbroker.runtime.env import Env, Network

logger = logging.getLogger(__name__)

_BUILDER = "principal.builder.class"

LOOK_SECONDS = 10.0
"""The time between two looks at the files of TLS stores."""


class NodeSecurity:
    """The steps that the properties ask for. ``FatalError`` if a property of security cannot be followed."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self._config = config
        self._in_force = config
        """With the properties of listeners that were set at run time."""
        self._env = env
        self._tls: dict[str, ListenerTls] = {}
        self._sasl: dict[str, ListenerSasl] = {}
        self._scratch = bytearray()
        self._handshakes: HandshakeThread | None = None
        """The steps of clients' handshakes have one thread: no storm of them takes the processors of the others."""
        self._turns = StepTurns()
        self._properties_changed = trio.Event()
        self._checking = trio.Lock()
        """One request's stores are read at a time: a file system that hangs holds one thread, not all of them."""
        brokers = config.inter_broker_listener_name if config.is_broker else ""
        controllers = config.controller_listener_names[0] if config.controller_listener_names else ""
        self._make_tls({brokers, controllers})
        self._make_sasl()
        self._builders: dict[str, Any] = {}
        """By its name: each principal builder in Python that the node's own file names for a listener."""
        self._load_builders()
        self._nursery: trio.Nursery | None = None
        self._ways = (
            (brokers, "sasl.mechanism.inter.broker.protocol"),
            (controllers, "sasl.mechanism.controller.protocol"),
        )
        self.to_brokers, self.to_controllers = (self._network(*way) for way in self._ways)
        """For connections to other brokers, over the listener of ``inter.broker.listener.name``; and to controllers,
        over the first of ``controller.listener.names``."""

    def _protocol(self, listener_name: str) -> SecurityProtocol:
        return SecurityProtocol[self._in_force.listener_security_protocol_map.get(listener_name, "PLAINTEXT")]

    def _make_tls(self, of_nodes: set[str]) -> None:
        """Read the stores of each listener with TLS: the node's own, and those by which it reaches other nodes."""
        own = {listener.name for listener in self._config.listeners}
        for name in sorted(own | of_nodes):
            if self._protocol(name).has_tls:
                self._add_tls(self._config, name, serves=name in own, connects=name in of_nodes)

    def _add_tls(self, config: BrokerConfig, name: str, *, serves: bool, connects: bool) -> None:
        try:
            from kbroker.node.security.tls import ListenerTls, scratch  # imports ssl and cryptography
        except InvalidConfig as error:
            raise FatalError(error.message) from None

        self._tls[name] = ListenerTls(name, config, serves=serves, connects=connects)
        self._scratch = self._scratch or scratch()

    def _make_sasl(self) -> None:
        """Read which mechanisms each of the node's listeners with SASL has, and by which users."""
        for listener in self._config.listeners:
            sasl = self._sasl_of(self._config, listener.name)
            if sasl is not None:
                self._sasl[listener.name] = sasl
        if self._sasl:
            from kbroker.node.security.sasl.setup import warn_without_effect

            warn_without_effect(self._config)  # once, however many listeners there are

    def _sasl_of(self, config: BrokerConfig, listener_name: str) -> ListenerSasl | None:
        if not self._protocol(listener_name).has_sasl:
            return None
        from kbroker.node.security.sasl.setup import ListenerSasl

        return ListenerSasl(config, listener_name)

    def admission(self, listener: Listener, services: Services) -> Admission | None:
        """The admission of one of the node's listeners; None if all are let in."""
        steps: list[AdmissionStep] = []
        wrap_poller = wait_for_room = None
        tls = self._tls.get(listener.name)
        if tls is not None:
            from kbroker.node.security.handshake_thread import HandshakeThread
            from kbroker.node.security.tls import PendingPoller, TlsAdmission

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
        return Admission(steps, wrap_poller, turns=self._turns, wait_for_room=wait_for_room)

    def _principal_builder(self, listener: Listener) -> AdmissionStep | None:
        """The step of a principal builder in Python; None without one."""
        value = _builder_of(self._in_force, listener.name)[1]
        if value.startswith("python:") and value not in self._builders:
            logger.error(
                "listener %s keeps its principal builder: %s is not in the node's own file", listener.name, value
            )
            value = _builder_of(self._config, listener.name)[1]
        if value not in self._builders:
            return None
        from kbroker.node.rules.principals import PrincipalStep

        return PrincipalStep(self._builders[value], value, listener.name, listener.security_protocol)

    def _load_builders(self) -> None:
        """Load the principal builders that the node's own file names, also for listeners to come, and no others."""
        for name, value in self._config.raw.items():
            is_one = name == _BUILDER or (name.startswith("listener.name.") and name.endswith(f".{_BUILDER}"))
            if is_one and value.strip().startswith("python:"):
                from kbroker.rules.loading import load

                self._builders[value.strip()] = load(name, value.strip(), "build")

    def _network(self, listener_name: str, mechanism_property: str) -> Network:
        steps = self._steps(self._config, listener_name, mechanism_property)
        if not steps:
            return self._env.network
        from kbroker.node.security.secure_network import SecureNetwork

        return SecureNetwork(self._env.network, steps)

    def _steps(self, config: BrokerConfig, listener_name: str, mechanism_property: str) -> list[ConnectionStep]:
        steps: list[ConnectionStep] = []
        tls = self._tls.get(listener_name)
        if tls is not None:
            from kbroker.node.security.tls import TlsConnect

            steps.append(TlsConnect(tls, self._scratch, self._env.now))
        if self._protocol(listener_name).has_sasl:
            from kbroker.node.security.sasl.setup import connection_step

            steps.append(connection_step(config, listener_name, mechanism_property))
        return steps

    # --- while the node runs

    def start(self, nursery: trio.Nursery) -> None:
        """Start what clients need who are to be let in, nodes among them: before a listener is open."""
        self._nursery = nursery
        for sasl in self._sasl.values():
            nursery.start_soon(sasl.run)

    def follow(self, config: BrokerConfig) -> set[str]:
        """Let clients in, and reach other nodes, by other properties of SASL and of principals from now on.

        Returns the listeners whose ``admission`` is another. A listener that could not be had by the new properties
        goes on by the old ones, and so do connections that are open.
        """
        before, self._in_force = self._in_force, config
        if before is config:
            return set()
        changed = set()
        for listener in config.listeners:
            name = listener.name
            is_known = any(each.name == name for each in before.listeners)
            if is_known and _about(before, name) != _about(config, name) and self._follow_listener(config, name):
                changed.add(name)
        for way, network in zip(self._ways, (self.to_brokers, self.to_controllers), strict=True):
            if network is not self._env.network and _about(before, way[0]) != _about(config, way[0]):
                self._follow_way(config, network, way)
        return changed

    def _follow_listener(self, config: BrokerConfig, name: str) -> bool:
        try:
            sasl = self._sasl_of(config, name)
        except FatalError as error:
            logger.error("listener %s keeps its ways of logging in, the new ones cannot be used: %s", name, error)
            return False
        self._run_sasl(name, sasl)
        return True

    def _run_sasl(self, name: str, sasl: ListenerSasl | None) -> None:
        old = self._sasl.pop(name, None)
        if old is not None:
            old.stop()
        if sasl is not None:
            if old is not None:
                sasl.offered = old.offered
            self._sasl[name] = sasl
            if self._nursery is not None:
                self._nursery.start_soon(sasl.run)

    def _follow_way(self, config: BrokerConfig, network: Any, way: tuple[str, str]) -> None:
        try:
            network.steps = self._steps(config, *way)
        except FatalError as error:
            logger.error("this node logs in to other nodes as before, it cannot by the new properties: %s", error)

    def add(self, listener: Listener, config: BrokerConfig) -> None:
        """Make the security of a listener that is added at run time. ``FatalError`` if it cannot be had."""
        name = listener.name
        if self._protocol(name).has_tls and name not in self._tls:
            self._add_tls(config, name, serves=True, connects=False)
        self._run_sasl(name, self._sasl_of(config, name))

    def drop(self, name: str) -> None:
        """Forget the security of a listener that is removed at run time."""
        self._run_sasl(name, None)
        if name not in {way[0] for way in self._ways}:
            self._tls.pop(name, None)

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
        for tls in tuple(self._tls.values()):
            await self._refresh(tls, config)
            tls.warn_of_expiry(self._env.wall_clock_ms())

    async def _refresh(self, tls: ListenerTls, config: BrokerConfig) -> None:
        try:
            if await self._env.run_blocking(tls.refresh, config):
                logger.info("listener %s has read its TLS stores again", tls.listener)
        except InvalidConfig as error:
            problem = error.message
            logger.error("listener %s keeps its TLS stores, the new ones cannot be used: %s", tls.listener, problem)

    async def check(self, new: BrokerConfig) -> None:
        """Whether the listeners can go on with other properties; ``ApiError`` INVALID_REQUEST if not."""

        def check() -> None:
            for tls in tuple(self._tls.values()):
                tls.check(new)

        try:
            for listener in new.listeners:
                self._check_builder(new, listener.name)
                if _about(self._in_force, listener.name) != _about(new, listener.name):
                    self._check_sasl(new, listener.name)
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

    def _check_sasl(self, new: BrokerConfig, listener_name: str) -> None:
        """``ApiError`` if clients could not log in so; why a file cannot be used is for the log alone."""
        from kbroker.security.sasl.jaas import JaasError, parse_jaas

        for name, value in _about(new, listener_name).items():
            if name.startswith("listener.name.") and name.endswith(".sasl.jaas.config"):
                try:
                    parse_jaas(value)
                except JaasError as error:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: {error}") from None
        if listener_name in self._sasl:
            try:
                self._sasl_of(new, listener_name)
            except FatalError as error:
                told, cut, _ = str(error).partition(" cannot be used: ")
                if cut:
                    logger.warning("ways of logging in were not changed by request: %s", shown(str(error)))
                    told += " cannot be used; the log of the node says why"
                raise ApiError(ErrorCode.INVALID_REQUEST, told) from None

    def _check_builder(self, new: BrokerConfig, listener_name: str) -> None:
        name, value = _builder_of(new, listener_name)
        if value.startswith("python:") and value not in self._builders:
            told = f"{name}: over the wire it may name no other code than the node's own file does"
            raise ApiError(ErrorCode.INVALID_REQUEST, told)


def _builder_of(config: BrokerConfig, listener_name: str) -> tuple[str, str]:
    """The property that names a listener's principal builder, and its value."""
    prefixed = f"listener.name.{listener_name.lower()}.{_BUILDER}"
    name = prefixed if prefixed in config.raw else _BUILDER
    return name, config.raw.get(name, "").strip()


def _about(config: BrokerConfig, listener_name: str) -> dict[str, str]:
    """The properties that the admission of a listener is made from, but for the stores and the settings of its TLS."""
    from kbroker.config.security import SECURITY_CONFIGS, security_key
    from kbroker.config.security.tls import TlsProperties

    own = f"listener.name.{listener_name.lower()}."
    found = {}
    for name, value in config.raw.items():
        if name.startswith(own) or not name.startswith("listener.name."):
            key = security_key(name)
            if key is not None and key.name in SECURITY_CONFIGS and key not in TlsProperties.KEYS:
                found[name] = value
    return found
