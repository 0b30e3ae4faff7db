"""Transactions and producers, described for administrators.

DescribeTransactions (key 65): the state of transactional ids (KIP-664).
Served: 0.

ListTransactions (key 66): the transactional ids that this node coordinates (KIP-664).
Served: 0 to 2. 1: duration_filter (KIP-994); 2: transactional_id_pattern (KIP-1152).

DescribeProducers: who writes to a partition with a producer id, and since where a transaction is open (KIP-664).
Served: 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.cores.groups.regex import compile_topic_regex
from kbroker.cores.transactions.coordinator import TransactionCoordinator
from kbroker.cores.transactions.transaction import STATES_BY_NAME, partitions_by_topic
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_each, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.raft_metadata.topics import topic_name_problem, validate_topic_name
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.described_transactions import (
    DescribedTransactionState,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
)


@handler(DescribeTransactionsRequest)
async def handle_describe_transactions(
    request: DescribeTransactionsRequest, ctx: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id that this node coordinates."""
    share = FairShare(ctx)
    response = DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        await share.next()
        response.transaction_states.append(await _describe(transactional_id, ctx))
    return response


async def _describe(transactional_id: str, ctx: RequestContext) -> DescribedTransactionState:
    try:
        require_transactional_id(ctx, AclOperation.DESCRIBE, transactional_id)
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        transaction = await ctx.services.transactions.read(
            transactional_id, lambda core: core.describe(transactional_id)
        )
    except ApiError as error:
        return DescribedTransactionState(error_code=error.code, transactional_id=transactional_id)
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=False)  # nobody has named them
    return DescribedTransactionState(
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


def _lists_of(response: ListTransactionsResponse) -> Iterator[list[ListedTransactionState]]:
    yield response.transaction_states


@handler(ListTransactionsRequest, large_answers=LargeAnswers(_lists_of))
async def handle_list_transactions(request: ListTransactionsRequest, ctx: RequestContext) -> ListTransactionsResponse:
    """Every id that passes the filters and that the principal may describe; an empty filter lets all pass."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compile_topic_regex(request.transactional_id_pattern)
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code)
    producer_ids = set(request.producer_id_filters)
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    driver = ctx.services.transactions
    now_ms = driver.now_ms()

    def matching(core: TransactionCoordinator) -> list[ListedTransactionState]:
        return [
            ListedTransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.state_name,
            )
            for transaction in core.transactions.values()
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        ]

    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES_BY_NAME]
    )
    share = FairShare(ctx)
    for states_of_core in await driver.read_all(matching):
        for state in states_of_core:
            await share.next()
            name = state.transactional_id
            # Without a line in the audit log: nobody has named it.
            if may(ctx, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, audits_denial=False):
                response.transaction_states.append(state)
    return response


_PRODUCER_BYTES = 37
"""Bytes of a producer's state in the response."""


@handler(DescribeProducersRequest)
async def handle_describe_producers(
    request: DescribeProducersRequest, ctx: RequestContext
) -> DescribeProducersResponse:
    """Answer from the state of each partition's log, also of one that is followed here, as often as it is named."""
    response = DescribeProducersResponse()
    answers = DuplicateAnswers[list[ProducerState]](
        ctx.budgets.repeated_bytes, lambda producers: len(producers) * _PRODUCER_BYTES
    )
    share = FairShare(ctx)
    for topic in request.topics:
        result = TopicResponse(name=topic.name)
        # Asked once for the topic, and only where its name is one.
        allowed = topic_name_problem(topic.name) is not None or may(
            ctx, AclOperation.READ, ResourceType.TOPIC, topic.name
        )
        for index in topic.partition_indexes:
            await share.next()
            partition = PartitionResponse(partition_index=index)
            try:
                validate_topic_name(topic.name)
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                producers = answers.again((topic.name, index))
                if producers is None:
                    producers = _producers(ctx, topic.name, index)
                    answers.add((topic.name, index), producers)
                partition.active_producers = producers
            except ApiError as error:
                partition.error_code = error.code
                if error.code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST):
                    partition.error_message = error.message
                elif not allowed:
                    partition.error_message = standard_message(error.code)
                elif ctx.services.replica_manager.topic_id(topic.name) is None:
                    partition.error_message = "This server does not host this topic-partition."
            result.partitions.append(partition)
        response.topics.append(result)
    return response


def _producers(ctx: RequestContext, topic: str, index: int) -> list[ProducerState]:
    partition = ctx.services.replica_manager.get_partition(topic, index)
    if not partition.has_log and ctx.services.log_manager.get_log(partition.topic_partition) is None:
        return []  # nothing was ever written
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for entry in partition.log.producers.active_producers.values()
    ]
