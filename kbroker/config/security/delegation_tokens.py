"""Properties of delegation tokens (KIP-48)."""

from __future__ import annotations

from kbroker.config.definition import Range
from kbroker.config.table import LONG, LOW, MEDIUM, PASSWORD, Table

SECRET_KEY = "delegation.token.secret.key"
MAX_LIFETIME_MS = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_MS = "delegation.token.expiry.time.ms"
CHECK_INTERVAL_MS = "delegation.token.expiry.check.interval.ms"


class DelegationTokenProperties(Table):
    """Properties of delegation tokens."""

    delegation_token_expiry_check_interval_ms = LONG("3600000", LOW, Range(1))
    """Milliseconds between two looks of the active controller for delegation tokens that have expired."""
    delegation_token_expiry_time_ms = LONG("86400000", MEDIUM, Range(1))
    """Milliseconds for which a delegation token is valid before it is renewed."""
    delegation_token_max_lifetime_ms = LONG("604800000", MEDIUM, Range(1))
    """Milliseconds after which a delegation token cannot be renewed any more."""
    delegation_token_secret_key = PASSWORD(None, MEDIUM)
    """Key from which the secrets of delegation tokens are made, the same on all nodes. Without it there are none."""
