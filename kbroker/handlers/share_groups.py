"""The rule by which a node serves share groups at all (KIP-932)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext


def check_share_groups_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster serves share groups (``share.version``)."""
    levels, _ = ctx.services.metadata.finalized_features()
    if levels.get("share.version", 0) < 1 and not ctx.services.config.unstable_api_versions_enable:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
