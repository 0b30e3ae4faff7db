"""Properties of principals."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import CLASS, MEDIUM, PER_BROKER

KEYS = [
    *missing(
        "kbroker has no plugins that say who a connection belongs to",
        ConfigKey(
            "principal.builder.class",
            CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            MEDIUM,
            "Java class that says who a connection belongs to.",
            update_mode=PER_BROKER,
        ),
    ),
]
