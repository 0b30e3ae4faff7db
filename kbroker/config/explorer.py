"""The property that asks for the protocol explorer: the address that a node is watched by.

It is kbroker's own. As with that of metrics, DescribeConfigs does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.config.metrics import http_address

LISTENER: Final = "kbroker.explorer.listener"

DEFAULT_PORT: Final = 9292


def explorer_address(raw: Mapping[str, str]) -> tuple[str, int] | None:
    """Host (empty: all interfaces) and port (0: a free one) of the explorer; None if there is to be none.

    ``FatalError`` names the property if its value has another form.
    """
    return http_address(raw, LISTENER)
