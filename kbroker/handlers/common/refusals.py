"""Logs the rejection of another node's requests, one readable line for each node and error. Not an API itself.

A node of another cluster, with a wrong id or disk, or with the broker epoch of an earlier life, repeats its requests
all the time. The same line is logged once in :data:`SILENT_SECONDS`.
"""

from __future__ import annotations

import logging

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext

logger = logging.getLogger(__name__)

SILENT_SECONDS = 300.0
"""The same rejection is not logged again within this time."""

_REMEMBERED = 1000
"""Upper bound of the rejections that are remembered; there are fewer nodes."""

_LOGGED = frozenset(
    {
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INCONSISTENT_VOTER_SET,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors that tell of a faulty node; all others may occur for a moment in a healthy cluster."""


def log_rejection(ctx: RequestContext, who: str, code: int, why: str | None = None) -> None:
    """Warn that ``who`` is rejected with ``code``; not for passing errors, and not for a repetition."""
    if code not in _LOGGED:
        return
    services = ctx.services
    logged_at = services.refusals
    host = ctx.connection.peer.rpartition(":")[0]
    now = services.env.now()
    key = host, who, code
    if now < logged_at.get(key, -SILENT_SECONDS) + SILENT_SECONDS:
        return
    if len(logged_at) >= _REMEMBERED:
        logged_at.clear()
    logged_at[key] = now
    reason = "" if not why else f" ({why})"
    logger.warning("%s at %s is refused: %s%s", who, ctx.connection.peer, ErrorCode(code).name, reason)
