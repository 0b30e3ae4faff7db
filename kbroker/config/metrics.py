"""The property that asks for metrics: the address of the page for Prometheus.

Its name and form are those of Strimzi's Metrics Reporter, so that its users find it in their files. To Kafka, too, it
is none of a node's own properties: DescribeConfigs does not show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kbroker.errors import FatalError

LISTENER: Final = "prometheus.metrics.reporter.listener"

_FORM = re.compile(r"http://(?:\[([0-9a-fA-F:.]*)\]|([^:/\[\]]*)):([0-9]{1,5})/?")


def metrics_address(raw: Mapping[str, str]) -> tuple[str, int] | None:
    """Host (empty: all interfaces) and port (0: a free one) of the page; None if there is to be none.

    ``FatalError`` names the property if its value has another form.
    """
    return http_address(raw, LISTENER)


def http_address(raw: Mapping[str, str], name: str) -> tuple[str, int] | None:
    """The address in a property of the form ``http://HOST:PORT``, as `metrics_address`."""
    value = raw.get(name, "").strip()
    if not value:
        return None
    found = _FORM.fullmatch(value)
    if found is None or int(found[3]) > 65535:
        raise FatalError(f"{name}: {value!r} is not of the form http://HOST:PORT")
    return found[1] or found[2] or "", int(found[3])
