"""InitProducerId (key 22): an id for an idempotent producer.

Served: 0 to 5 (6 is unstable in 4.3.1). 2: flexible; 3: producer_id and epoch (KIP-360); 4: PRODUCER_FENCED; 5: as 4.

Without a transactional id a fresh id is given, from a block that the controller has granted this broker. With one,
a transaction coordinator is needed, and this node runs none yet: COORDINATOR_NOT_AVAILABLE, what Kafka answers
while its coordinator is not there; clients report it after their own timeout.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = Versions(0, 5)


@handler(InitProducerIdRequest, versions=VERSIONS)
async def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    """Give a new producer id with epoch 0 (``TransactionCoordinator.handleInitProducerId``)."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await ctx.services.producer_ids.next_id()
    except ApiError as error:
        return _refuse(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
