"""UpdateFeatures: raise or lower the levels that the cluster has agreed on.

Served: 0 to 2. 1: upgrade type and validate only; 2: all or none, told by the top-level error alone.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.features import KRAFT_VERSION, FeatureUpdate
from kbroker.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@handler(UpdateFeaturesRequest)
async def handle(request: UpdateFeaturesRequest, ctx: RequestContext) -> UpdateFeaturesResponse:
    """Update all of the features or none. Of two updates of one feature the later counts."""
    updates = {
        # In version 0 `allow_downgrade` stands for the type; Kafka has not looked at it since 3.3.
        update.feature: FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    }
    kraft_version = ctx.services.metadata.finalized_features()[0].get(KRAFT_VERSION, 0)
    try:
        await ctx.services.metadata.submit(
            lambda controller, now_ms: controller.features.update(
                list(updates.values()), kraft_version=kraft_version, validate_only=request.validate_only
            )
        )
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=name, error_message="NONE")
            for name in (updates if ctx.api_version < 2 else ())
        ],
    )
