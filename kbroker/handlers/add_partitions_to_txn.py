"""AddPartitionsToTxn (key 24): partitions become part of a transaction before they are written to.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: from brokers, several transactions, to add or to verify (KIP-890);
5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.cores.transactions.records import partitions_by_topic
from kbroker.cores.transactions.transaction import TV_0, TV_2
from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import May, may, may_act_as_node, may_each, prefetch_permissions, would_allow
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.transactions import fenced_for
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_FROM_BROKERS = 4

_TopicResults = list[AddPartitionsToTxnTopicResult]


async def _prefetch_permissions(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> None:
    if ctx.api_version >= _FROM_BROKERS:
        return
    transactional_id = request.v3_and_below_transactional_id
    if would_allow(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        names = (topic.name for topic in request.v3_and_below_topics if topic.name not in INTERNAL_TOPICS)
        await prefetch_permissions(ctx, AclOperation.WRITE, ResourceType.TOPIC, names)


@handler(AddPartitionsToTxnRequest, prefetch_permissions=_prefetch_permissions)
def handle(
    request: AddPartitionsToTxnRequest, ctx: RequestContext
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    """Answer for each transaction; below version 4 there is one, in the request's own fields."""
    if ctx.api_version < _FROM_BROKERS:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    else:
        if not may_act_as_node(ctx):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        transactions = request.transactions
        if not transactions:
            raise CloseConnection("AddPartitionsToTxn without a transaction, which Kafka never answers")
    results: dict[int, _TopicResults] = {}

    def answered(reply: Later[AddPartitionsToTxnResponse], index: int, topics: _TopicResults) -> None:
        results[index] = topics
        if len(results) < len(transactions):
            return
        if ctx.api_version < _FROM_BROKERS:
            reply.set(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0]))
            return
        reply.set(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results[number])
                    for number, each in enumerate(transactions)
                ]
            )
        )

    def begin(reply: Later[AddPartitionsToTxnResponse]) -> None:
        for index, transaction in enumerate(transactions):
            _answer(transaction, ctx, partial(answered, reply, index))

    return Later(begin)


def _answer(
    transaction: AddPartitionsToTxnTransaction, ctx: RequestContext, on_answered: Callable[[_TopicResults], None]
) -> None:
    partitions = list(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )
    may_write: May | None = None
    if ctx.services.authorizer is not None and ctx.api_version < _FROM_BROKERS:
        if not may(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
            on_answered(_same_for_all(transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        may_write = may_each(ctx, AclOperation.WRITE, ResourceType.TOPIC)
    refused = _refused(partitions, ctx, may_write)
    if refused:
        # One that cannot be added keeps the others from being added too.
        on_answered(_by_partition({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}))
        return
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        _verify(transaction.transactional_id, producer, partitions, ctx, on_answered)
        return
    client_version = TV_2 if ctx.api_version >= _FROM_BROKERS else TV_0

    added: Later[None] = Later()

    def on_added() -> None:
        code = ErrorCode.NONE if added.error is None else fenced_for(added.error.code, ctx.api_version >= 2)
        on_answered(_same_for_all(transaction, code))

    added.on_done(on_added)
    # Another broker tries again by itself, after its backoff; a client waits longer than that.
    transactions = ctx.services.transactions
    settings = transactions.settings
    from_client = ctx.api_version < _FROM_BROKERS
    patience_ms = settings.client_patience_ms if from_client else settings.add_partitions_retry_backoff_ms
    transactions.add_partitions(
        transaction.transactional_id, producer, partitions, client_version, added, patience_ms=patience_ms
    )


def _same_for_all(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> _TopicResults:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def _refused(
    partitions: list[TopicPartition], ctx: RequestContext, may_write: May | None
) -> dict[TopicPartition, ErrorCode]:
    """Partitions that do not exist or that the principal may not write to, and those of internal topics, which no
    client may write to."""
    from_client = ctx.api_version < _FROM_BROKERS
    exists = ctx.services.metadata.image.topics.partition
    refused = {}
    for each in partitions:
        if (from_client and each.topic in INTERNAL_TOPICS) or (may_write is not None and not may_write(each.topic)):
            refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif exists(*each) is None:
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _verify(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    ctx: RequestContext,
    on_answered: Callable[[_TopicResults], None],
) -> None:
    def verify(core: TransactionCoordinator, now_ms: int) -> CoordinatorResult[dict[TopicPartition, ErrorCode]]:
        return CoordinatorResult(core.verify_partitions(transactional_id, producer, partitions))

    verified: Later[dict[TopicPartition, ErrorCode]] = Later()

    def on_verified() -> None:
        error = verified.error
        on_answered(_by_partition(verified.value if error is None else dict.fromkeys(partitions, error.code)))

    verified.on_done(on_verified)
    ctx.services.transactions.run_when_free(transactional_id, verify, verified, patience_ms=0)


def _by_partition(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    """Each partition once, however often it was named."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in partitions_by_topic(errors).items()
    ]
