"""UnregisterController (key 94): forget a controller that has left the cluster for good (KIP-1312). Served: 0."""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.brokers import unregister_controller
from kbroker.wire.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


@handler(UnregisterControllerRequest)
async def handle(request: UnregisterControllerRequest, ctx: RequestContext) -> UnregisterControllerResponse:
    """Unregister the controller. One that runs registers again when it starts."""
    refused: UnregisterControllerResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        metadata = ctx.services.metadata
        await metadata.submit(lambda view: unregister_controller(view, request.controller_id, metadata.voter_ids))
    except ApiError as error:
        code, message = error_fields(error)
        return UnregisterControllerResponse(error_code=code, error_message=message)
    return UnregisterControllerResponse(error_message=None)
