"""EndTxn (key 26): commit or abort.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE; 5: transaction version 2, with the epoch of
the next transaction in the response (KIP-890).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.handlers.transactions import fenced_for
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.transactions.transaction import TV_0, TV_2
from kbroker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSIONS = Versions(0, 5)

_VERSION_2 = 5


@handler(EndTxnRequest, versions=VERSIONS)
async def handle(request: EndTxnRequest, ctx: RequestContext) -> EndTxnResponse:
    """The decision is stored when this is answered; the markers may still be on their way."""
    transactional_id = request.transactional_id
    client_version = TV_2 if ctx.api_version >= _VERSION_2 else TV_0
    services = ctx.services
    try:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if client_version >= TV_2:
            await services.producer_ids.ensure()
        producer = await services.transactions.submit(
            transactional_id,
            lambda shard, now_ms: shard.end_transaction(
                transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                request.committed,
                client_version,
                now_ms,
            ),
        )
    except ApiError as error:
        return EndTxnResponse(error_code=fenced_for(error.code, ctx.api_version >= 2))
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
