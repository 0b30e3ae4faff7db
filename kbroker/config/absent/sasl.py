"""Properties of SASL that belong to Java classes."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import (
    CLASS,
    MEDIUM,
)

KEYS = [
    *missing(
        "kbroker loads no Java classes",
        ConfigKey(
            "sasl.client.callback.handler.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that answers callbacks of SASL clients.",
        ),
        ConfigKey(
            "sasl.login.class",
            CLASS,
            None,
            MEDIUM,
            "Java class that logs in.",
        ),
    ),
]
