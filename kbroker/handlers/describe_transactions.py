"""DescribeTransactions (key 65): the state of transactional ids (KIP-664).

Served: 0.
"""

from __future__ import annotations

from kbroker.cores.transactions.records import partitions_by_topic
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@handler(DescribeTransactionsRequest)
async def handle(request: DescribeTransactionsRequest, ctx: RequestContext) -> DescribeTransactionsResponse:
    """Describe each id that this node coordinates."""
    share = FairShare(ctx)
    response = DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        await share.next()
        response.transaction_states.append(await _describe(transactional_id, ctx))
    return response


async def _describe(transactional_id: str, ctx: RequestContext) -> TransactionState:
    try:
        require_transactional_id(ctx, AclOperation.DESCRIBE, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        transaction = await ctx.services.transactions.read(
            transactional_id, lambda core: core.describe(transactional_id)
        )
    except ApiError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=False)  # nobody has named them
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.state_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions)
            for topic, partitions in partitions_by_topic(transaction.partitions).items()
            if may_see is None or may_see(topic)
        ],
    )
