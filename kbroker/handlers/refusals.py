"""Tells of other nodes that are turned away, in one readable line for each. Not an API itself.

A node that is of another cluster, has a false id or disk, or thinks that it lives in an earlier life, asks again and
again: the line comes once in a while, however often that is.
"""

from __future__ import annotations

import logging

from kbroker.errors import ErrorCode
from kbroker.handlers.context import RequestContext

logger = logging.getLogger(__name__)

SILENT_SECONDS = 300.0
"""How long the same is not told again."""

_REMEMBERED = 1000
"""So many refusals are told apart; there are not so many nodes."""

_KEY = "refusals"

_TOLD = frozenset(
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
"""What is wrong with a node; all else may be so for a moment in a cluster that is well."""


def tell_refusal(ctx: RequestContext, who: str, code: int, why: str | None = None) -> None:
    """Log that ``who`` is refused with ``code``, unless that was said lately, or is nothing to tell of."""
    if code not in _TOLD:
        return
    services = ctx.services
    told: dict[tuple[str, str, int], float] = services.extra.setdefault(_KEY, {})
    host = ctx.connection.peer.rpartition(":")[0]
    now = services.env.now()
    key = host, who, code
    if now < told.get(key, -SILENT_SECONDS) + SILENT_SECONDS:
        return
    if len(told) >= _REMEMBERED:
        told.clear()
    told[key] = now
    reason = "" if not why else f" ({why})"
    logger.warning("%s at %s is refused: %s%s", who, ctx.connection.peer, ErrorCode(code).name, reason)
