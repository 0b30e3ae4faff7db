"""The receivers of clients' metrics (KIP-714), by the property ``metric.reporters``. Imported where it is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.config.broker import BrokerProperties
from kbroker.config.security.rules import METRIC_REPORTERS, check_name, names_python
from kbroker.errors import FatalError

JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
FILE_PREFIX: Final = "file:"


def receivers_of(names: Sequence[str]) -> list[str]:
    """The receivers of clients' metrics among the values of ``metric.reporters``."""
    return [name.strip() for name in names if names_python(name) or name.strip().startswith(FILE_PREFIX)]


def java_reporters(names: Sequence[str]) -> list[str]:
    """The values of ``metric.reporters`` that are Java classes, which have no effect; not Kafka's default."""
    receivers = receivers_of(names)
    return [name.strip() for name in names if name.strip() not in (JMX_REPORTER, *receivers)]


def check_telemetry(config: BrokerProperties) -> None:
    """:class:`FatalError` for a receiver that cannot be."""
    for name in receivers_of(config.values.get(METRIC_REPORTERS) or ()):
        if names_python(name):
            check_name(METRIC_REPORTERS, name)
        elif not name.removeprefix(FILE_PREFIX).startswith("/"):
            raise FatalError(f"{METRIC_REPORTERS}: {name}: the path must be absolute")
