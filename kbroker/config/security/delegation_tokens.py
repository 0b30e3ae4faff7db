"""Properties of delegation tokens (KIP-48)."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import LONG, LOW, MEDIUM, PASSWORD

SECRET_KEY = "delegation.token.secret.key"
MAX_LIFETIME_MS = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_MS = "delegation.token.expiry.time.ms"
CHECK_INTERVAL_MS = "delegation.token.expiry.check.interval.ms"

KEYS: list[ConfigKey] = [
    ConfigKey(
        CHECK_INTERVAL_MS,
        LONG,
        "3600000",
        LOW,
        "Milliseconds between two looks of the active controller for delegation tokens that have expired.",
        validator=Range(1),
    ),
    ConfigKey(
        EXPIRY_TIME_MS,
        LONG,
        "86400000",
        MEDIUM,
        "Milliseconds for which a delegation token is valid before it is renewed.",
        validator=Range(1),
    ),
    ConfigKey(
        MAX_LIFETIME_MS,
        LONG,
        "604800000",
        MEDIUM,
        "Milliseconds after which a delegation token cannot be renewed any more.",
        validator=Range(1),
    ),
    ConfigKey(
        SECRET_KEY,
        PASSWORD,
        None,
        MEDIUM,
        "Key from which the secrets of delegation tokens are made, the same on all nodes. Without it there are none.",
    ),
]
