"""The properties that ask for metrics by OTLP: where they go, and how often. Imported where one is set.

Their names are those of OpenTelemetry's agent for Java, so that they are the variables of its specification in small
letters. To Kafka they are none of a node's own properties: DescribeConfigs does not show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kbroker.errors import FatalError

ENDPOINT: Final = "otel.exporter.otlp.endpoint"
INTERVAL: Final = "otel.metric.export.interval"
INTERVAL_VARIABLE: Final = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"
PATH: Final = "/v1/metrics"

_DEFAULT_INTERVAL_MS: Final = 60_000
_LEAST_INTERVAL_MS: Final = 100


class OtlpSettings(NamedTuple):
    """Whereto and how often metrics are exported."""

    endpoint: str
    """The URL with its path."""
    interval_ms: int


def otlp_settings(raw: Mapping[str, str], environment: Mapping[str, str]) -> OtlpSettings | None:
    """The settings of a node; None if it exports nothing. ``FatalError`` names the property that is wrong."""
    endpoint = raw.get(ENDPOINT, "").strip()
    interval = raw.get(INTERVAL, "").strip()
    if not endpoint:
        if interval:
            raise FatalError(f"{INTERVAL} has no effect without {ENDPOINT}")
        return None
    if interval:
        return OtlpSettings(_url(endpoint), _interval(INTERVAL, interval))
    return OtlpSettings(_url(endpoint), _interval(INTERVAL_VARIABLE, environment.get(INTERVAL_VARIABLE, "").strip()))


def endpoint_of(environment: Mapping[str, str]) -> str:
    """The endpoint that OpenTelemetry's variables name, or its default."""
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    return environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or environment.get(name) or DEFAULT_ENDPOINT


def _url(text: str) -> str:
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        valid = False
    if not valid or not text.isprintable() or " " in text:
        raise FatalError(f"{ENDPOINT}: {text!r} is not of the form http://HOST:PORT or https://HOST:PORT")
    if url.username is not None or url.password is not None:
        raise FatalError(f"{ENDPOINT}: credentials belong into OTEL_EXPORTER_OTLP_HEADERS, not into the address")
    if url.query or url.fragment:
        raise FatalError(f"{ENDPOINT}: {text!r} has more than a path")
    return text if text.endswith(PATH) else text.rstrip("/") + PATH


def _interval(name: str, text: str) -> int:
    if not text:
        return _DEFAULT_INTERVAL_MS
    if not (text.isascii() and text.isdigit()) or int(text) < _LEAST_INTERVAL_MS:
        raise FatalError(f"{name}: {text!r} is not a number of milliseconds, {_LEAST_INTERVAL_MS} or more")
    return int(text)
