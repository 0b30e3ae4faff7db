"""DescribeTopicPartitions: topics page by page, with ELR (KIP-966).

Served: 0. Topics come in name order; ``cursor`` is where the page begins, ``next_cursor`` where the next one does.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import authorized_operations, may_each
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import offline_replicas
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import MetadataImage, PartitionImage, TopicImage
from kbroker.raft_metadata.topics import INTERNAL_TOPICS, topic_name_problem
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@handler(DescribeTopicPartitionsRequest)
async def handle(request: DescribeTopicPartitionsRequest, ctx: RequestContext) -> DescribeTopicPartitionsResponse:
    """Describe one page of the topics asked for (of all, if none is named)."""
    image: MetadataImage = ctx.services.metadata.image
    cursor = request.cursor
    every_topic = not request.topics
    asked = image.topics.by_name if every_topic else [topic.name for topic in request.topics]
    first = "" if cursor is None else cursor.topic_name
    names = sorted({name for name in asked if name >= first})
    bad_cursor = cursor is not None and (
        cursor.partition_index < 0 or (not every_topic and cursor.topic_name not in names)
    )
    if bad_cursor:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ]
        )
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=not every_topic)
    share = FairShare(ctx)
    hidden: list[str] = []
    if may_see is not None and not every_topic:
        # Every page has those that may not be seen; it is not told whether they exist.
        for name in names:
            await share.next()
            if not may_see(name):
                hidden.append(name)
        unseen = set(hidden)
        names = [name for name in names if name not in unseen]
    limit = ctx.services.config.max_request_partition_size_limit
    remaining = max(min(limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        await share.next()
        if every_topic and may_see is not None and not may_see(name):
            continue  # of all topics, only those are judged that the page comes to
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            if not every_topic:
                response.topics.append(_unknown(name, ctx))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        end = min(len(topic.partitions), start + remaining)
        response.topics.append(_part_of(topic, range(start, end), image, ctx))
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(end - start, 0)
    response.topics += map(_denied, hidden)
    return response


def _part_of(
    topic: TopicImage, partition_ids: Iterable[int], image: MetadataImage, ctx: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    """A topic with some of its partitions."""
    listener = ctx.connection.listener_name
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe(image, each, topic.partitions[each], listener) for each in partition_ids],
        topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, topic.name),
    )


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _unknown(name: str, ctx: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    problem = topic_name_problem(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem is None else ErrorCode.INVALID_TOPIC_EXCEPTION),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, name),
    )


def _describe(
    image: MetadataImage, partition_id: int, partition: PartitionImage, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    leader = image.brokers.get(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition_id,
        leader_id=partition.leader if leader is not None and listener in leader.endpoints else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )
