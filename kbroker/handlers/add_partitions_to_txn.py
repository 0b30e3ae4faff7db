"""AddPartitionsToTxn (key 24): partitions become part of a transaction before they are written to.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: from brokers, several transactions, to add or to verify (KIP-890);
5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.handlers.transactions import fenced_for
from kbroker.raft_metadata.controller.topic_names import INTERNAL_TOPICS
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.transactions.records import partitions_by_topic
from kbroker.transactions.transaction import TV_0, TV_2
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

VERSIONS = Versions(0, 5)

_FROM_BROKERS = 4


@handler(AddPartitionsToTxnRequest, versions=VERSIONS)
async def handle(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> AddPartitionsToTxnResponse:
    """Answer for each transaction; below version 4 there is one, in the request's own fields."""
    if ctx.api_version < _FROM_BROKERS:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _answer(transaction, ctx))
    if not request.transactions:
        raise CloseConnection("AddPartitionsToTxn without a transaction, which Kafka never answers")
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=await _answer(transaction, ctx)
            )
            for transaction in request.transactions
        ]
    )


async def _answer(
    transaction: AddPartitionsToTxnTransaction, ctx: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = list(
        dict.fromkeys(
            TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
        )
    )
    refused = _refused(partitions, ctx)
    if refused:
        # One that cannot be added keeps the others from being added too.
        return _by_partition(
            {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
        )
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return _by_partition(await _verify(transaction.transactional_id, producer, partitions, ctx))
    code = fenced_for(await _add(transaction.transactional_id, producer, partitions, ctx), ctx.api_version >= 2)
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


def _refused(partitions: list[TopicPartition], ctx: RequestContext) -> dict[TopicPartition, ErrorCode]:
    """Partitions that do not exist, and those of internal topics, which no client may write to."""
    from_client = ctx.api_version < _FROM_BROKERS
    exists = ctx.services.metadata.image.topics.partition
    refused = {}
    for each in partitions:
        if from_client and each.topic in INTERNAL_TOPICS:
            refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif exists(*each) is None:
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


async def _verify(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: list[TopicPartition], ctx: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    try:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        shard = await ctx.services.transactions.loaded_shard(transactional_id)
        verified: dict[TopicPartition, ErrorCode] = shard.verify_partitions(transactional_id, producer, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)
    return verified


async def _add(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: list[TopicPartition], ctx: RequestContext
) -> ErrorCode:
    client_version = TV_2 if ctx.api_version >= _FROM_BROKERS else TV_0
    try:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        await ctx.services.transactions.submit(
            transactional_id,
            lambda shard, now_ms: shard.add_partitions(
                transactional_id, producer, partitions, client_version, now_ms
            ),
        )
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


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
