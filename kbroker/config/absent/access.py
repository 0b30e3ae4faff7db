"""Properties of delegation tokens."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import LONG, LOW, MEDIUM, PASSWORD

KEYS = [
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
