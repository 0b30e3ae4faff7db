"""ControllerRegistration (key 70): a controller registers its listeners and features (KIP-919).

Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.brokers import register_controller
from kbroker.raft_metadata.image import ControllerImage, read_endpoints, read_features
from kbroker.types import Uuid
from kbroker.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse


@handler(ControllerRegistrationRequest)
async def handle(request: ControllerRegistrationRequest, ctx: RequestContext) -> ControllerRegistrationResponse:
    """Register the controller."""
    refused: ControllerRegistrationResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    registration = ControllerImage(
        id=request.controller_id,
        incarnation_id=Uuid(request.incarnation_id),
        endpoints=read_endpoints(request.listeners),
        features=read_features(request.features),
    )
    try:
        await ctx.services.metadata.submit(lambda view: register_controller(view, registration))
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
    return ControllerRegistrationResponse(error_message=None)
