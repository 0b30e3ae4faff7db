"""Properties of principals and delegation tokens."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import CLASS, LONG, LOW, MEDIUM, PASSWORD, PER_BROKER

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
    *missing(
        "kbroker has no delegation tokens",
        ConfigKey(
            "delegation.token.expiry.check.interval.ms",
            LONG,
            "3600000",
            LOW,
            "Milliseconds between two looks for tokens that have expired.",
            validator=Range(1),
        ),
        ConfigKey(
            "delegation.token.expiry.time.ms",
            LONG,
            "86400000",
            MEDIUM,
            "Milliseconds for which a token is valid before it is renewed.",
            validator=Range(1),
        ),
        ConfigKey(
            "delegation.token.max.lifetime.ms",
            LONG,
            "604800000",
            MEDIUM,
            "Milliseconds after which a token cannot be renewed any more.",
            validator=Range(1),
        ),
        ConfigKey(
            "delegation.token.secret.key",
            PASSWORD,
            None,
            MEDIUM,
            "Secret from which the tokens' secrets are made, the same on all nodes.",
        ),
    ),
]
