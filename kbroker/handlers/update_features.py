"""UpdateFeatures: raise or lower finalized feature levels.

Served: 0 to 2. 1: upgrade type and validate only; 2: all or none, with the top-level error alone.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.services.metadata import Metadata
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.features import UPGRADE, FeatureUpdate, update_failed, update_features
from kbroker.raft_metadata.features import KRAFT_VERSION
from kbroker.wire.messages.update_features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse


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
    try:
        await _update(list(updates.values()), ctx.services.metadata, validate_only=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=name, error_message="NONE")
            for name in (updates if ctx.api_version < 2 else ())
        ],
    )


async def _update(updates: list[FeatureUpdate], metadata: Metadata, *, validate_only: bool) -> None:
    """Have the controller set the levels, and the quorum that of ``kraft.version``, which is in its own records."""

    def decide(view: ControllerView, *, validate_only: bool) -> ControllerResult[None]:
        kraft_version = metadata.finalized_features()[0].get(KRAFT_VERSION, 0)
        return update_features(
            view, updates, kraft_version=kraft_version, voters=metadata.voter_ids, validate_only=validate_only
        )

    kraft = next((update for update in updates if update.name == KRAFT_VERSION), None)
    if kraft is not None and kraft.upgrade_type == UPGRADE:
        # All is judged before the quorum takes its level: afterwards nothing is to be refused.
        await metadata.submit(lambda view: decide(view, validate_only=True))
        try:
            await metadata.upgrade_kraft_version(kraft.level, validate_only=validate_only)
        except ApiError as error:
            raise error if error.code is ErrorCode.NOT_CONTROLLER else update_failed(error.message) from None
    await metadata.submit(lambda view: decide(view, validate_only=validate_only))
