"""Metrics that a client is asked for: subscriptions, whom they match, and the id that stands for all of it (KIP-714).

The rules are those of Kafka's ``ClientMetricsManager`` and ``ClientMetricsInstanceMetadata``. The id is Kafka's to the
bit: a client that goes from a JVM broker to this one keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kbroker.base.re2_patterns import Re2Pattern
from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS, compile_expression
from kbroker.types import Uuid
from kbroker.wire.batch_header import crc32c

DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"


class ClientAttributes(NamedTuple):
    """The attributes of a client that a subscription may match. Texts; None where the client does not say."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """A subscription to metrics. ``match`` has a compiled expression of RE2 for each attribute that it names."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Re2Pattern]

    def matches(self, client: ClientAttributes) -> bool:
        """Whether each expression matches the whole attribute."""
        for attribute, expression in self.match.items():
            text = getattr(client, attribute)
            if text is None or expression.fullmatch(text.encode()) is None:
                return False
        return True


def parse_subscription(name: str, configs: Mapping[str, str]) -> Subscription:
    """The subscription that a CLIENT_METRICS resource stands for; :class:`UnusableExpression`."""

    def value(key: str) -> Any:
        config = CLIENT_METRICS_CONFIGS[key]
        return CLIENT_METRICS_CONFIGS.parse(key, configs.get(key, config.default or ""))

    match = {}
    for pattern in value("match"):
        attribute, _, expression = pattern.partition("=")
        match[attribute.strip()] = compile_expression(expression.strip().rstrip("="))
    return Subscription(name, tuple(value("metrics")), int(value("interval.ms")), match)


class SubscriptionRequest(NamedTuple):
    """All that a client is asked for."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def wanted_of(
    subscriptions: Iterable[Subscription], client: ClientAttributes, instance_id: Uuid
) -> SubscriptionRequest:
    """The subscriptions that match, put together: all their metrics, the shortest interval."""
    metrics: dict[str, None] = {}
    interval_ms = DEFAULT_INTERVAL_MS
    for subscription in subscriptions:
        if subscription.matches(client):
            metrics.update(dict.fromkeys(subscription.metrics))
            interval_ms = min(interval_ms, subscription.interval_ms)
    names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(_as_java_set(metrics))
    return SubscriptionRequest(subscription_id(names, interval_ms, instance_id), names, interval_ms)


def subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: Uuid) -> int:
    """CRC-32C of metrics and interval, XOR the hash of the instance id; a signed int of 32 bits."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    high, low = (int.from_bytes(instance_id[at : at + 8], "big") for at in (0, 8))
    both = high ^ low
    unsigned = crc32c(text.encode()) ^ (both >> 32) ^ (both & 0xFFFF_FFFF)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _as_java_set(names: Iterable[str]) -> list[str]:
    """The order in which Java's ``HashSet`` gives them: the id is made from it."""
    listed = list(names)
    buckets = 16
    while len(listed) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = _java_hash(name)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(listed, key=bucket)


def _java_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = code * 31 + int.from_bytes(units[at : at + 2], "big") & 0xFFFF_FFFF
    return code
