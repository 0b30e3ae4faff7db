"""UpdateFeatures: raise or lower finalized feature levels.

Served: 0 to 2. 1: upgrade type and validate only; 2: all or none, with the top-level error alone.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.cluster_permission import cluster_refusal
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.features import FeatureUpdate, update_features
from kbroker.raft_metadata.features import KRAFT_VERSION
from kbroker.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


@handler(UpdateFeaturesRequest)
async def handle(request: UpdateFeaturesRequest, ctx: RequestContext) -> UpdateFeaturesResponse:
    """Update all of the features or none. Of two updates of one feature the later counts."""
    refused: UpdateFeaturesResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    updates = {
        # In version 0 `allow_downgrade` stands for the type; Kafka has not looked at it since 3.3.
        update.feature: FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    }
    kraft_version = ctx.services.metadata.finalized_features()[0].get(KRAFT_VERSION, 0)
    try:
        await ctx.services.metadata.submit(
            lambda view: update_features(
                view, list(updates.values()), kraft_version=kraft_version, validate_only=request.validate_only
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
