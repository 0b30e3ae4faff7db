"""A node's security: the admission of each listener, and the networks by which it reaches other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.node.admission import Admission, AdmissionStep
from kbroker.node.secure_network import ConnectionStep, SecureNetwork

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig, Listener
    from kbroker.env import Env, Network


class NodeSecurity:
    """What is configured, made into steps. ``FatalError`` if a property of security cannot be followed."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self._config = config
        self._env = env
        protocols = config.listener_security_protocol_map
        self.to_brokers: Network = self._network(
            config.inter_broker_listener_name, protocols.get(config.inter_broker_listener_name, "PLAINTEXT")
        )
        """For connections to other brokers: over the listener of ``inter.broker.listener.name``."""
        controller = config.controller_listener_names[0] if config.controller_listener_names else ""
        self.to_controllers: Network = self._network(controller, protocols.get(controller, "PLAINTEXT"))
        """For connections to controllers: over the first of ``controller.listener.names``."""

    def admission(self, listener: Listener) -> Admission | None:
        """The admission of one of the node's listeners; None if all are let in."""
        steps: list[AdmissionStep] = []
        return Admission(steps) if steps else None

    def _network(self, listener_name: str, protocol: str) -> Network:
        steps: list[ConnectionStep] = []
        return SecureNetwork(self._env.network, steps) if steps else self._env.network
