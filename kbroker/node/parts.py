"""Starting and stopping the parts of a node, and the parts that only properties ask for.

Of optional parts nothing is imported without the properties: each function looks at the raw ones first, and makes a
part or returns None.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from kbroker.config import BrokerConfig
from kbroker.config.listeners import EXPLORER_LISTENER, METRICS_LISTENER, OTHER_METRICS, http_address, parse_voters
from kbroker.errors import FatalError
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.node.controller.image_publisher import Subscriber
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


class Part(NamedTuple):
    """A part of a node. The parts of a node start in their order, and stop in the reverse order."""

    on_image: Subscriber | None = None
    """Follows the metadata, from when the part starts."""
    run: Callable[[], Awaitable[object]] | None = None
    """The part's task, which is cancelled when all parts have stopped."""
    start: Callable[[trio.Nursery], Awaitable[object] | None] | None = None
    """Brings the part up; the next part starts after that. What goes on is a task of the nursery."""
    stop: Callable[[], Awaitable[object]] | None = None
    """Called while all tasks still run, also where ``start`` has not ended."""


class StartLimit:
    """The deadline of a start (``server.max.startup.time.ms``), counted from when this object is made."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._deadline = trio.current_time() + limit_ms / 1000

    @contextmanager
    def up_in_time(self) -> Iterator[None]:
        """Run the block that brings the node up: `FatalError` if it takes too long. Tasks that it starts go on."""
        with trio.CancelScope(deadline=self._deadline) as scope:
            yield
        if scope.cancelled_caught:
            raise FatalError(f"the node is not up within server.max.startup.time.ms ({self._limit_ms} ms)")


async def run_parts(
    parts: Sequence[Part], subscribe: Callable[[Subscriber], None], limit: StartLimit, on_up: Callable[[], None]
) -> None:
    """Start the parts in their order, and when cancelled, stop them in the reverse order. Then their tasks end at once.

    ``subscribe`` has a part follow the metadata, ``on_up`` is called when all parts have started. After a failure no
    part is stopped: its tasks end.
    """
    begun: list[Part] = []
    work = trio.CancelScope(shield=True)  # a node that stops serves on until others lead what it leads

    async def stop_first() -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                with trio.CancelScope(shield=True):
                    for part in reversed(begun):
                        if part.stop is not None:
                            await part.stop()
            finally:
                work.cancel()  # whatever becomes of that: nothing else ends it

    async with trio.open_nursery() as outer:
        outer.start_soon(stop_first)
        try:
            with work:
                async with trio.open_nursery() as nursery:
                    with limit.up_in_time():
                        for part in parts:
                            begun.append(part)
                            if part.on_image is not None:
                                subscribe(part.on_image)
                            if part.run is not None:
                                nursery.start_soon(part.run)
                            starting = None if part.start is None else part.start(nursery)
                            if starting is not None:
                                await starting
                    on_up()
        except BaseException:
            begun.clear()
            raise


def make_metrics(config: BrokerConfig, env: Env, node: MeasuredNode) -> MetricsService | None:
    """The metrics of a node that is to show some."""
    address = http_address(config.raw, METRICS_LISTENER)
    if address is None:
        return None
    from kbroker.node.metrics.service import MetricsService

    others = parse_voters(filter(None, config.raw.get(OTHER_METRICS, "").split(",")), OTHER_METRICS)
    return MetricsService(address, env, node, others)


def make_explorer(config: BrokerConfig, env: Env, node: ObservedNode) -> ExplorerService | None:
    """The explorer of a node that is to be watched."""
    address = http_address(config.raw, EXPLORER_LISTENER)
    if address is None:
        return None
    from kbroker.node.explorer.service import ExplorerService

    return ExplorerService(address, env, node)


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
    from kbroker.security.authorizer.standard import standard_authorizer

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
