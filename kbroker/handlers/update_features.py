"""UpdateFeatures: raise or lower the levels that the cluster has agreed on.

Served: 0 to 2. 1: upgrade type and validate only; 2: all or none, told by the top-level error alone.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import duplicates
from kbroker.handlers.registration import BOTH, Versions, handler
from kbroker.raft_metadata.controller.features import SAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from kbroker.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

VERSIONS = Versions(0, 2)


@handler(UpdateFeaturesRequest, versions=VERSIONS, listeners=BOTH, forwarded=True)
async def handle(request: UpdateFeaturesRequest, ctx: RequestContext) -> UpdateFeaturesResponse:
    """Update all of the features or none."""
    try:
        updates = _updates(request, ctx.api_version)
        await ctx.services.metadata.submit(
            lambda controller, now_ms: controller.features.update(updates, validate_only=request.validate_only)
        )
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in (request.feature_updates if ctx.api_version < 2 else ())
        ],
    )


def _updates(request: UpdateFeaturesRequest, version: int) -> list[FeatureUpdate]:
    twice = duplicates(update.feature for update in request.feature_updates)
    if twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Feature {twice[0]} is updated more than once.")
    updates = []
    for update in request.feature_updates:
        if version == 0:
            upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        else:
            upgrade_type = update.upgrade_type
            if upgrade_type not in (1, 2, 3):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown upgrade type {upgrade_type}.")
        updates.append(FeatureUpdate(update.feature, update.max_version_level, upgrade_type))
    return updates
