"""The properties that ask for metrics by OTLP: where they go, and how often. Imported where one is set.

Their names are those of OpenTelemetry's agent for Java, so that they are the variables of its specification in small
letters. To Kafka they are none of a node's own properties: DescribeConfigs does not show them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from kbroker.errors import FatalError

ENDPOINT: Final = "otel.exporter.otlp.endpoint"
INTERVAL: Final = "otel.metric.export.interval"
INTERVAL_VARIABLE: Final = "OTEL_METRIC_EXPORT_INTERVAL"
HEADERS_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""The first goes before the second."""
DEFAULT_ENDPOINT: Final = "http://localhost:4318"
PATH: Final = "/v1/metrics"

_DEFAULT_INTERVAL_MS: Final = 60_000
_LEAST_INTERVAL_MS: Final = 100
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+[ \t]*=[ \t]*[ !#-+\--:<-\[\]-~]*")
"""The headers that OpenTelemetry's exporter takes: of any other it logs all, with the secret that it may be."""


class OtlpSettings(NamedTuple):
    """Whereto and how often metrics are exported."""

    endpoint: str
    """The URL with its path."""
    interval_ms: int


def otlp_settings(raw: Mapping[str, str], environment: Mapping[str, str]) -> OtlpSettings | None:
    """The settings of a node; None if it exports nothing.

    ``FatalError`` names the property or the variable that is wrong, and shows no header.
    """
    endpoint = raw.get(ENDPOINT, "").strip()
    interval = raw.get(INTERVAL, "").strip()
    if not endpoint:
        if interval:
            raise FatalError(f"{INTERVAL} has no effect without {ENDPOINT}")
        return None
    _check_headers(environment)
    if interval:
        return OtlpSettings(_url(endpoint), _interval(INTERVAL, interval))
    return OtlpSettings(_url(endpoint), _interval(INTERVAL_VARIABLE, environment.get(INTERVAL_VARIABLE, "").strip()))


def endpoint_of(environment: Mapping[str, str]) -> str:
    """The endpoint that OpenTelemetry's variables name, or its default."""
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    return environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or environment.get(name) or DEFAULT_ENDPOINT


def _check_headers(environment: Mapping[str, str]) -> None:
    variable = next(filter(environment.get, HEADERS_VARIABLES), "")
    for number, text in enumerate(environment.get(variable, "").split(","), 1):
        header = text.strip()
        if header and not (_HEADER.fullmatch(header) and unquote(header).isprintable()):
            raise FatalError(
                f"{variable}: entry {number} is not of the form NAME=VALUE, with %20 and the like in VALUE"
            )


def _url(text: str) -> str:
    if "@" in text:
        raise FatalError(f"{ENDPOINT}: credentials belong into OTEL_EXPORTER_OTLP_HEADERS, not into the address")
    if "?" in text or "#" in text:
        raise FatalError(f"{ENDPOINT}: the address ends with its path, without a ? or # and more")
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and url.hostname and (url.port is None or url.port > 0)
    except ValueError:
        valid = False
    if not valid or not text.isprintable() or " " in text:
        raise FatalError(f"{ENDPOINT}: {text!r} is not of the form http://HOST:PORT or https://HOST:PORT")
    return text if text.endswith(PATH) else text.rstrip("/") + PATH


def _interval(name: str, text: str) -> int:
    if not text:
        return _DEFAULT_INTERVAL_MS
    if not (text.isascii() and text.isdigit()) or int(text) < _LEAST_INTERVAL_MS:
        raise FatalError(f"{name}: {text!r} is not a number of milliseconds, {_LEAST_INTERVAL_MS} or more")
    return int(text)
