"""DeleteRecords (key 21): move a partition's log start offset forward.

Served: 0 to 2. 2: flexible.
"""

from __future__ import annotations

import logging

import trio

from kbroker.cores.replication.purgatory import Key, OffsetWaiter, Results
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger(__name__)


@handler(DeleteRecordsRequest)
async def handle(request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    """``Partition.deleteRecordsOnLeader`` for each partition, then wait for the followers to do the same.

    As in Kafka, a partition that is named again is answered once: its last offset counts.
    """
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    manager = ctx.services.replica_manager
    topics = []
    waiting: dict[Key, DeleteRecordsPartitionResult] = {}
    required: dict[Key, int] = {}
    share = FairShare(ctx)
    may_delete = may_each(ctx, AclOperation.DELETE, ResourceType.TOPIC)
    for name, offsets in wanted.items():
        answers = []
        for index, offset in offsets.items():
            await share.next()
            answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            try:
                if may_delete is not None and not may_delete(name):
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if name in INTERNAL_TOPICS and manager.exists(name, index):
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                start = manager.delete_records(name, index, offset)
                key = TopicPartition(name, index)
                answer.low_watermark = manager.partitions[key].low_watermark()
                if answer.low_watermark < start:
                    waiting[key], required[key] = answer, start
            except ApiError as error:
                answer.error_code = error.code
            except Exception:
                logger.exception("DeleteRecords of %s-%d failed", name, index)
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            answers.append(answer)
        if answers:  # as in Kafka, whose answers are by partition
            topics.append(DeleteRecordsTopicResult(name=name, partitions=answers))
    if waiting:
        for each, failure in (await _followed(required, request.timeout_ms / 1000, ctx)).items():
            answer, followed = waiting[each], manager.find(*each)
            try:
                if failure or followed is None:  # None: dropped while others were waited for
                    raise ApiError(failure or ErrorCode.NOT_LEADER_OR_FOLLOWER)
                answer.low_watermark = followed.low_watermark()
            except ApiError as error:
                answer.error_code, answer.low_watermark = error.code, -1
    return DeleteRecordsResponse(topics=topics)


async def _followed(required: dict[Key, int], seconds: float, ctx: RequestContext) -> Results:
    """Wait until the low watermarks have come so far; an error, or None, for each partition."""
    done = trio.Event()
    operation = OffsetWaiter(required, lambda results: done.set())
    manager = ctx.services.replica_manager
    purgatory = manager.purgatory
    purgatory.watch_delete(operation)
    for key in required:  # what has come to pass since is not told again
        partition = manager.find(*key)
        if partition is None or not partition.state.is_leader or partition.offline:
            operation.fail(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            operation.reached(key, partition.low_watermark())
    try:
        with trio.move_on_after(max(seconds, 0)):
            await done.wait()
        operation.expire(ErrorCode.REQUEST_TIMED_OUT)
    finally:
        purgatory.unwatch_delete(operation)
    return operation.results
