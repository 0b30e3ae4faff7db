"""OffsetForLeaderEpoch (key 23): where a leader epoch ends, so that a client finds out about truncation (KIP-320).

Served: 2 (current_leader_epoch) to 4. 3: replica_id; 4: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, may_on_cluster, require_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@handler(OffsetForLeaderEpochRequest)
async def handle(request: OffsetForLeaderEpochRequest, ctx: RequestContext) -> OffsetForLeaderEpochResponse:
    """``Partition.lastOffsetForLeaderEpoch`` of each partition. As in Kafka, topics that are refused come last."""
    manager = ctx.services.replica_manager
    topics, denied = [], []
    may_see = None
    if not may_on_cluster(ctx, AclOperation.CLUSTER_ACTION, audits_denial=False):
        may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC)
    share = FairShare(ctx)
    for topic in request.topics:
        await share.next()
        if may_see is not None and not may_see(topic.topic):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused = [EpochEndOffset(partition=wanted.partition, error_code=code) for wanted in topic.partitions]
            denied.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=refused))
            continue
        answers = []
        for wanted in topic.partitions:
            await share.next()
            answer = EpochEndOffset(partition=wanted.partition)
            try:
                if wanted.hand_over_to:
                    require_cluster(ctx, AclOperation.CLUSTER_ACTION)
                    tp = TopicPartition(topic.topic, wanted.partition)
                    answer.handed_over = await manager.hand_over(tp, request.replica_id, wanted.hand_over_to)
                    answers.append(answer)
                    continue
                log = manager.get_leader(topic.topic, wanted.partition, wanted.current_leader_epoch).log
                found = log.leader_epochs.end_offset_for(wanted.leader_epoch, log.log_end_offset)
                answer.leader_epoch, answer.end_offset = found.epoch, found.offset
            except ApiError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics + denied)
