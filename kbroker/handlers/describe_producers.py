"""DescribeProducers: who writes to a partition with a producer id, and since where a transaction is open (KIP-664).

Served: 0.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.topics import topic_name_problem, validate_topic_name
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_PRODUCER_BYTES = 37
"""Bytes of a producer's state in the response."""


@handler(DescribeProducersRequest)
async def handle(request: DescribeProducersRequest, ctx: RequestContext) -> DescribeProducersResponse:
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
