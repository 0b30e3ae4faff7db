"""AllocateProducerIds (key 67): a broker gets a block of producer ids from the active controller (KIP-730).

Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.producer_ids import allocate_producer_ids
from kbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@handler(AllocateProducerIdsRequest)
async def handle(request: AllocateProducerIdsRequest, ctx: RequestContext) -> AllocateProducerIdsResponse:
    """Grant the broker the next block, which no other broker gets."""
    refused: AllocateProducerIdsResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        block = await ctx.services.metadata.submit(
            lambda view: allocate_producer_ids(view, request.broker_id, request.broker_epoch)
        )
    except ApiError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
