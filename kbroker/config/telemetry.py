"""The receivers of clients' metrics (KIP-714), by the property ``metric.reporters``. Imported where it is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.config.broker_properties import BrokerProperties
from kbroker.config.security.rules import METRIC_REPORTERS, check_name, names_python
from kbroker.errors import FatalError

JMX_REPORTER: Final = "org.apache.kafka.common.metrics.JmxReporter"
FILE_PREFIX: Final = "file:"


def receivers_of(names: Sequence[str]) -> list[str]:
    """The receivers of clients' metrics among the values of ``metric.reporters``."""
    return [name.strip() for name in names if names_python(name) or name.strip().startswith(FILE_PREFIX)]


def check_telemetry(config: BrokerProperties) -> None:
    """:class:`FatalError` for a reporter that there is not."""
    for name in config.values.get(METRIC_REPORTERS) or ():
        if name.strip().startswith(FILE_PREFIX):
            if not name.strip().removeprefix(FILE_PREFIX).startswith("/"):
                raise FatalError(f"{METRIC_REPORTERS}: {name.strip()}: the path must be absolute")
        elif name.strip() != JMX_REPORTER:
            check_name(METRIC_REPORTERS, name)
