"""ControllerRegistration (key 70): a node of the quorum has its listeners and features written down (KIP-919).

Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import ControllerImage, read_endpoints, read_features
from kbroker.types import Uuid
from kbroker.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


@handler(ControllerRegistrationRequest)
async def handle(request: ControllerRegistrationRequest, ctx: RequestContext) -> ControllerRegistrationResponse:
    """Write the controller down."""
    registration = ControllerImage(
        id=request.controller_id,
        incarnation_id=Uuid(request.incarnation_id),
        endpoints=read_endpoints(request.listeners),
        features=read_features(request.features),
    )
    try:
        await ctx.services.metadata.submit(
            lambda controller, now_ms: controller.brokers.register_controller(registration)
        )
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)
    return ControllerRegistrationResponse(error_message=None)
