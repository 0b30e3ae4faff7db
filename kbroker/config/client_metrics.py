"""The properties of a subscription to clients' metrics (resource type CLIENT_METRICS, KIP-714).

A subscription is metadata; a node asks clients by it only if its ``metric.reporters`` has a receiver. The expressions
of ``match`` are RE2's, though Java's in Kafka: they are matched against what strangers send, and RE2 takes linear time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.base.re2_patterns import Re2Error, Re2Pattern, compile_re2
from kbroker.config.config_key import ConfigDef, InvalidConfig, ListOf
from kbroker.config.table import INT, LIST, MEDIUM, Table
from kbroker.errors import ApiError, ErrorCode

_INTERVAL, _MATCH, _METRICS = "interval.ms", "match", "metrics"


class ClientMetricsProperties(Table):
    """Properties of a subscription."""

    interval_ms = INT("300000", MEDIUM)
    """Interval at which a client is to send metrics, in milliseconds."""
    match = LIST("", MEDIUM, ListOf())
    """Clients that are meant: `name=regular expression` each, with the names client_id, client_instance_id,
    client_software_name, client_software_version, client_source_address, client_source_port; empty for all."""
    metrics = LIST("", MEDIUM, ListOf())
    """Beginnings of the names of the metrics wanted; `*` for all metrics, empty for none."""


CLIENT_METRICS_CONFIGS = ConfigDef("client metrics", ClientMetricsProperties.KEYS)
"""Properties that may be set for one subscription."""

_SHORTEST_MS, _LONGEST_MS = 100, 3_600_000
_PARSED_IN_ORDER = (_METRICS, _INTERVAL, _MATCH)
_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def validate_client_metrics(subscription: str, configs: Mapping[str, str]) -> None:
    """Judge all that is set for a subscription; ``ApiError`` (Kafka's ``ClientMetricsConfigs.validate``)."""
    if not subscription:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
    values = {name: CLIENT_METRICS_CONFIGS.parse(name, configs[name]) for name in _PARSED_IN_ORDER if name in configs}
    interval = values.get(_INTERVAL)
    if interval is not None and not _SHORTEST_MS <= interval <= _LONGEST_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval} for {_INTERVAL}, interval must be between {_SHORTEST_MS} and {_LONGEST_MS} "
            "(1 hour)",
        )
    _check_patterns(values.get(_MATCH, ()))


def _check_patterns(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        selector, equals, expression = pattern.rstrip("=").partition("=")
        if not equals or "=" in expression or selector.strip() not in _SELECTORS:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
        try:
            compile_expression(expression.strip())
        except UnusableExpression:
            raise InvalidConfig(
                f"Illegal client matching pattern: {pattern}: kbroker matches with RE2, which does not take this"
            ) from None


class UnusableExpression(ValueError):
    """RE2 does not know the expression, though Java may: look-around, a reference to a group, possessive counts."""


def compile_expression(expression: str) -> Re2Pattern:
    """Compile an expression of ``match``; :class:`UnusableExpression`."""
    try:
        return compile_re2(expression)
    except Re2Error:
        raise UnusableExpression(expression) from None
