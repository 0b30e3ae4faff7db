"""EndTxn (key 26): commit or abort.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE; 5: transaction version 2, with the epoch of
the next transaction in the response (KIP-890).
"""

from __future__ import annotations

from kbroker.coordinator.result import CoordinatorResult
from kbroker.errors import ApiError
from kbroker.handlers.context import DelayedResponse, RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.transactions import fenced_for, submit_soon
from kbroker.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.transactions.transaction import TV_0, TV_2
from kbroker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_VERSION_2 = 5


@handler(EndTxnRequest)
def handle(request: EndTxnRequest, ctx: RequestContext) -> DelayedResponse:
    """The decision is stored when this is answered; the markers are written after that."""
    client_version = TV_2 if ctx.api_version >= _VERSION_2 else TV_0

    def end(shard: TransactionCoordinator, now_ms: int) -> CoordinatorResult[ProducerIdAndEpoch]:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return shard.end_transaction(request.transactional_id, producer, request.committed, client_version, now_ms)

    def begin(delayed: DelayedResponse) -> None:
        def decided(producer: ProducerIdAndEpoch | None, error: ApiError | None) -> None:
            if error is not None:
                delayed.complete(EndTxnResponse(error_code=fenced_for(error.code, ctx.api_version >= 2)))
            else:
                assert producer is not None
                delayed.complete(
                    EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
                )

        submit_soon(ctx, request.transactional_id, end, decided)

    return DelayedResponse(begin)
