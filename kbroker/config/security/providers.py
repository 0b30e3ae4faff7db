"""The property that names config providers (KIP-297); `kbroker.config.providers` reads it, with the file."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey
from kbroker.config.provided import PROVIDERS
from kbroker.config.shorthand import CLUSTER_WIDE, LIST, LOW

KEYS = [
    ConfigKey(
        PROVIDERS,
        LIST,
        "",
        LOW,
        "Names of providers that put values in the place of variables in this file, with `config.providers.NAME.class`;"
        " from the file alone, never over the wire.",
        update_mode=CLUSTER_WIDE,
    ),
]
