"""Reasons that members of classic groups give for joining and leaving (KIP-800), in the log for people to read."""

from __future__ import annotations

import logging

from kbroker.security.shown import shown

logger = logging.getLogger(__name__)


def log_reason(group_id: str, member_id: str, step: str, reason: str | None) -> None:
    """Tell why a member took a ``step`` (joins, leaves); nothing if it gave no reason."""
    if reason:
        logger.info("group %s: member %s %s: %s", shown(group_id), shown(member_id), step, shown(reason))
