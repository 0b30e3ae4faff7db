"""The rule by which a node serves streams groups at all (KIP-1071)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import RequestContext


def check_streams_groups_enabled(ctx: RequestContext) -> None:
    """`ApiError` UNSUPPORTED_VERSION unless the cluster (``streams.version``) and this node serve streams groups."""
    levels, _ = ctx.services.metadata.finalized_features()
    config = ctx.services.config
    served = "streams" in config.group_coordinator_rebalance_protocols
    if not served or levels.get("streams.version", 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
