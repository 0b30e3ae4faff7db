"""AddOffsetsToTxn (key 25): the offsets of a group become part of a transaction.

Served: 0 to 4. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.internal_topics import ensure_internal_topic
from kbroker.handlers.registration import Versions, handler
from kbroker.handlers.transactions import fenced_for
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.transactions.transaction import TV_0
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

VERSIONS = Versions(0, 4)


@handler(AddOffsetsToTxnRequest, versions=VERSIONS)
async def handle(request: AddOffsetsToTxnRequest, ctx: RequestContext) -> AddOffsetsToTxnResponse:
    """Add the group's partition of ``__consumer_offsets`` to the transaction, as any other partition."""
    services = ctx.services
    try:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        await ensure_internal_topic(services, services.groups.TOPIC)
        partition = TopicPartition(services.groups.TOPIC, services.groups.partition_for(request.group_id))
        await services.transactions.submit(
            request.transactional_id,
            lambda shard, now_ms: shard.add_partitions(
                request.transactional_id,
                ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
                [partition],
                TV_0,
                now_ms,
            ),
        )
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=fenced_for(error.code, ctx.api_version >= 2))
    return AddOffsetsToTxnResponse()
