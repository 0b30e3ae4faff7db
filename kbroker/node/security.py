"""A node's security: the admission of each listener, and the networks by which it reaches other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.node.admission import Admission, AdmissionStep
from kbroker.node.secure_network import ConnectionStep, SecureNetwork
from kbroker.security.protocol import SecurityProtocol

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig, Listener
    from kbroker.env import Env, Network
    from kbroker.handlers.context import Services
    from kbroker.node.sasl_setup import ListenerSasl


class NodeSecurity:
    """What is configured, made into steps. ``FatalError`` if a property of security cannot be followed."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self._config = config
        self._env = env
        self._sasl: dict[str, ListenerSasl] = {}
        for listener in config.listeners:
            if SecurityProtocol[listener.security_protocol].has_sasl:
                from kbroker.node.sasl_setup import ListenerSasl

                self._sasl[listener.name] = ListenerSasl(config, listener.name)
        protocols = config.listener_security_protocol_map
        self.to_brokers: Network = self._network(
            config.inter_broker_listener_name,
            protocols.get(config.inter_broker_listener_name, "PLAINTEXT"),
            "sasl.mechanism.inter.broker.protocol",
        )
        """For connections to other brokers: over the listener of ``inter.broker.listener.name``."""
        controller = config.controller_listener_names[0] if config.controller_listener_names else ""
        self.to_controllers: Network = self._network(
            controller, protocols.get(controller, "PLAINTEXT"), "sasl.mechanism.controller.protocol"
        )
        """For connections to controllers: over the first of ``controller.listener.names``."""

    def admission(self, listener: Listener, services: Services) -> Admission | None:
        """The admission of one of the node's listeners; None if all are let in."""
        steps: list[AdmissionStep] = []
        if listener.name in self._sasl:
            is_controller = listener.name in self._config.controller_listener_names
            steps.append(self._sasl[listener.name].admission(services, is_controller=is_controller))
        return Admission(steps) if steps else None

    def _network(self, listener_name: str, protocol: str, mechanism_property: str) -> Network:
        steps: list[ConnectionStep] = []
        if SecurityProtocol[protocol].has_sasl:
            from kbroker.node.sasl_setup import connection_step

            steps.append(connection_step(self._config, listener_name, mechanism_property))
        return SecureNetwork(self._env.network, steps) if steps else self._env.network
