"""EndTxn (key 26): commit or abort.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE; 5: transaction version 2, with the epoch of
the next transaction in the response (KIP-890).
"""

from __future__ import annotations

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.cores.transactions.transaction import TV_0, TV_2
from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.transactions import fenced_for
from kbroker.handlers.registration import handler
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_VERSION_2 = 5


@handler(EndTxnRequest)
def handle(request: EndTxnRequest, ctx: RequestContext) -> EndTxnResponse | Later[EndTxnResponse]:
    """Answer when the decision is stored; the markers are written after that."""
    if not may(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    client_version = TV_2 if ctx.api_version >= _VERSION_2 else TV_0

    def end(core: TransactionCoordinator, now_ms: int) -> CoordinatorResult[ProducerIdAndEpoch]:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return core.end_transaction(request.transactional_id, producer, request.committed, client_version, now_ms)

    def begin(reply: Later[EndTxnResponse]) -> None:
        decided: Later[ProducerIdAndEpoch] = Later()

        def on_decided() -> None:
            if decided.error is not None:
                reply.set(EndTxnResponse(error_code=fenced_for(decided.error.code, ctx.api_version >= 2)))
            else:
                next_id, next_epoch = decided.value
                reply.set(EndTxnResponse(producer_id=next_id, producer_epoch=next_epoch))

        decided.on_done(on_decided)
        ctx.services.transactions.run_when_free(request.transactional_id, end, decided, patience_ms=0)

    return Later(begin)
