"""AddOffsetsToTxn (key 25): the offsets of a group become part of a transaction.

Served: 0 to 4. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without.
"""

from __future__ import annotations

from kbroker.coordinator.result import CoordinatorResult
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.internal_topics import ensure_internal_topic
from kbroker.handlers.registration import handler
from kbroker.handlers.transactions import fenced_for
from kbroker.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.transactions.transaction import TV_0
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handler(AddOffsetsToTxnRequest)
async def handle(request: AddOffsetsToTxnRequest, ctx: RequestContext) -> AddOffsetsToTxnResponse:
    """Add the group's partition of ``__consumer_offsets`` to the transaction, as any other partition."""
    services = ctx.services
    try:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        await ensure_internal_topic(services, services.groups.TOPIC)
        partition = TopicPartition(services.groups.TOPIC, services.groups.partition_for(request.group_id))

        def add(shard: TransactionCoordinator, now_ms: int) -> CoordinatorResult[None]:
            producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
            return shard.add_partitions(request.transactional_id, producer, [partition], TV_0, now_ms)

        try:
            await services.transactions.submit(request.transactional_id, add)
        except ApiError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            # The last transaction is about to be complete; a client that is told so waits for a tenth of a second.
            await services.transactions.until_free(request.transactional_id)
            await services.transactions.submit(request.transactional_id, add)
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=fenced_for(error.code, ctx.api_version >= 2))
    return AddOffsetsToTxnResponse()
