"""AddPartitionsToTxn (key 24): partitions become part of a transaction before they are written to.

Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: from brokers, several transactions, to add or to verify (KIP-890);
5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import CloseConnection, RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.handlers.transactions import fenced_for
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.transactions.transaction import TV_0, TV_2
from kbroker.types import TopicPartition
from kbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
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
    return _results(transaction.topics, await _errors(transaction, partitions, ctx))


async def _errors(
    transaction: AddPartitionsToTxnTransaction, partitions: list[TopicPartition], ctx: RequestContext
) -> dict[TopicPartition, ErrorCode]:
    topics = ctx.services.metadata.image.topics
    missing = {partition for partition in partitions if topics.partition(*partition) is None}
    if missing:
        # One that cannot be added keeps the others from being added too.
        return {
            partition: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
            for partition in partitions
        }
    transactional_id = transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    try:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        driver = ctx.services.transactions
        if transaction.verify_only:
            shard = await driver.loaded_shard(transactional_id)
            verified: dict[TopicPartition, ErrorCode] = shard.verify_partitions(transactional_id, producer, partitions)
            return verified
        client_version = TV_2 if ctx.api_version >= _FROM_BROKERS else TV_0
        await driver.submit(
            transactional_id,
            lambda shard, now_ms: shard.add_partitions(
                transactional_id, producer, partitions, client_version, now_ms
            ),
        )
    except ApiError as error:
        return dict.fromkeys(partitions, fenced_for(error.code, ctx.api_version >= 2))
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
