"""The parts of a node that only its properties ask for: without these, nothing of a part is imported.

Each function looks at the raw properties first, and makes a part or returns None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig

if TYPE_CHECKING:
    from kbroker.node.explorer.observed_node import ObservedNode
    from kbroker.node.explorer.service import ExplorerService
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.service import MetricsService
    from kbroker.node.rules.setup import NodeRules
    from kbroker.node.serving.observed_requests import MakeObserver, RequestObservers
    from kbroker.node.telemetry.telemetry import Telemetry
    from kbroker.runtime.env import Env
    from kbroker.security.authorizer.standard import StandardAuthorizer
    from kbroker.security.delegation_tokens import DelegationTokens

RULES = (
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "create.topic.policy.class.name",
    "client.quota.callback.class",
    "group.consumer.assignors",
    "group.share.assignors",
    "group.streams.assignors",
    "group.streams.topology.description.plugin.class",
    "replica.selector.class",
)
"""Properties that may name callables in Python for the whole node."""


def make_metrics(config: BrokerConfig, env: Env, node: MeasuredNode) -> MetricsService | None:
    """The metrics of a node that is to show some."""
    if not config.raw.get("prometheus.metrics.reporter.listener", "").strip():
        return None
    from kbroker.config.metrics import metrics_address
    from kbroker.node.metrics.service import MetricsService

    address = metrics_address(config.raw)
    return None if address is None else MetricsService(address, env, node)


def make_explorer(config: BrokerConfig, env: Env, node: ObservedNode) -> ExplorerService | None:
    """The explorer of a node that is to be watched."""
    if not config.raw.get("kbroker.explorer.listener", "").strip():
        return None
    from kbroker.config.explorer import explorer_address
    from kbroker.node.explorer.service import ExplorerService

    address = explorer_address(config.raw)
    return None if address is None else ExplorerService(address, env, node)


def make_observers(metrics: MetricsService | None, explorer: ExplorerService | None) -> RequestObservers | None:
    """The observers of requests, those that metrics and the explorer have."""
    makers: list[MakeObserver] = [] if metrics is None else [metrics.counts.observer]
    if explorer is not None:
        makers.append(explorer.observer)
    if not makers:
        return None
    from kbroker.node.serving.observed_requests import RequestObservers

    return RequestObservers(makers)


def make_authorizer(config: BrokerConfig) -> StandardAuthorizer | None:
    """The authorizer that ACLs are for; None if everybody may do everything."""
    if not config.values.get("authorizer.class.name"):
        return None
    from kbroker.config.security.authorization import has_authorizer
    from kbroker.security.authorizer.settings import standard_authorizer

    return standard_authorizer(config) if has_authorizer(config) else None


def make_rules(config: BrokerConfig, authorizer: StandardAuthorizer | None, env: Env) -> NodeRules | None:
    """The rules in Python for the whole node, by its own file."""
    if not any("python:" in str(config.values.get(name)) for name in RULES):
        return None
    from kbroker.node.rules.setup import NodeRules

    return NodeRules(config, authorizer, env)


def make_telemetry(config: BrokerConfig, env: Env, metrics: MetricsService | None) -> Telemetry | None:
    """The node's part of KIP-714, which asks clients for metrics; None if nothing would take them."""
    if not config.is_broker or (metrics is None and "metric.reporters" not in config.raw):
        return None
    from kbroker.config.telemetry import receivers_of

    if metrics is None and not receivers_of(config.metric_reporters):
        return None
    from kbroker.node.telemetry.receivers import make_receivers
    from kbroker.node.telemetry.telemetry import Telemetry

    page = None if metrics is None else metrics.counts.clients.push
    return Telemetry(env, make_receivers(config.metric_reporters), config.telemetry_max_bytes, page)


def make_tokens(config: BrokerConfig) -> DelegationTokens | None:
    """The key of delegation tokens."""
    if not config.values.get("delegation.token.secret.key"):
        return None
    from kbroker.security.delegation_tokens import DelegationTokens

    return DelegationTokens.of_config(config)
