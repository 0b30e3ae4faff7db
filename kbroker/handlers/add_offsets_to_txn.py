"""AddOffsetsToTxn (key 25): the offsets of a group become part of a transaction.

Served: 0 to 4. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without.
"""

from __future__ import annotations

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.cores.transactions.transaction import TV_0
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_group, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.handlers.common.transactions import fenced_for
from kbroker.handlers.registration import handler
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handler(AddOffsetsToTxnRequest)
async def handle(
    request: AddOffsetsToTxnRequest, ctx: RequestContext
) -> AddOffsetsToTxnResponse | Later[AddOffsetsToTxnResponse]:
    """Add the group's partition of ``__consumer_offsets`` to the transaction, as any other partition."""
    services = ctx.services
    transactions = services.transactions

    def answer(error: ApiError | None) -> AddOffsetsToTxnResponse:
        code = ErrorCode.NONE if error is None else fenced_for(error.code, ctx.api_version >= 2)
        return AddOffsetsToTxnResponse(error_code=code)

    try:
        require_transactional_id(ctx, AclOperation.WRITE, request.transactional_id)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        await transactions.until_loaded(request.transactional_id)  # a refused request creates no topic
        await ensure_internal_topic(services, services.groups.TOPIC)
    except ApiError as error:
        return answer(error)
    index = services.groups.partition_for(request.group_id)
    if index is None:  # the topic has been deleted since
        return answer(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    partition = TopicPartition(services.groups.TOPIC, index)

    def begin(reply: Later[AddOffsetsToTxnResponse]) -> None:
        added: Later[None] = Later()
        added.on_done(lambda: reply.set(answer(added.error)))
        transactions.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [partition],
            TV_0,
            added,
            patience_ms=transactions.settings.client_patience_ms,
        )

    return Later(begin)
