"""UnregisterBroker: forget a broker that has left the cluster for good. Served: 0."""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import error_fields
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.brokers import unregister_broker
from kbroker.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@handler(UnregisterBrokerRequest)
async def handle(request: UnregisterBrokerRequest, ctx: RequestContext) -> UnregisterBrokerResponse:
    """Unregister the broker, whether it runs or not."""
    refused: UnregisterBrokerResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        await ctx.services.metadata.submit(lambda view: unregister_broker(view, request.broker_id))
    except ApiError as error:
        code, message = error_fields(error)
        return UnregisterBrokerResponse(error_code=code, error_message=message)
    return UnregisterBrokerResponse(error_message=None)
