"""The rule by which a node serves share groups at all (KIP-932)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.raft_metadata.features import SHARE_VERSION


def check_share_groups_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster serves share groups (``share.version``)."""
    if ctx.services.metadata.image.features.levels.get(SHARE_VERSION, 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
