"""DescribeShareGroupOffsets (key 90): where share groups are in their partitions. Served: 0 to 1. 1: lag (KIP-1226).

A request that wants to hear what is in flight, by a tag of kbroker's own, is answered by `in_flight_answers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cores.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey, StateSummary
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.common.share_groups import check_share_groups_enabled, persister_of
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from kbroker.handlers.common.in_flight_answers import InFlightAnswers

_NO_LEADER_EPOCH = 0
_UNKNOWN_LAG = -1


@handler(DescribeShareGroupOffsetsRequest)
async def handle(request: DescribeShareGroupOffsetsRequest, ctx: RequestContext) -> DescribeShareGroupOffsetsResponse:
    """Answer for each group: the partitions that are named, or all that have a state."""
    version = ctx.api_version
    answers = DuplicateAnswers[DescribeShareGroupOffsetsResponseGroup](
        ctx.budgets.repeated_bytes,
        lambda group: encoded_size(DescribeShareGroupOffsetsResponse(groups=[group]), version),
    )
    response = DescribeShareGroupOffsetsResponse()
    in_flight = _in_flight_answers(ctx) if request.wants_in_flight else None
    share = FairShare(ctx)
    for asked in request.groups:
        await share.next()
        try:
            check_share_groups_enabled(ctx)
            require_group(ctx, AclOperation.DESCRIBE, asked.group_id)
            if in_flight is not None:
                response.groups.append(await in_flight.answer(asked))
                continue
            group = answers.again(asked.group_id) if asked.topics is None else None
            if group is None:
                group = await _describe(asked, ctx)
                if asked.topics is None:
                    answers.add(asked.group_id, group)
        except ApiError as error:
            group = DescribeShareGroupOffsetsResponseGroup(
                group_id=asked.group_id, error_code=error.code, error_message=error.message
            )
        response.groups.append(group)
    return response


def _in_flight_answers(ctx: RequestContext) -> InFlightAnswers:
    from kbroker.handlers.common.in_flight_answers import InFlightAnswers

    return InFlightAnswers(ctx)


async def _describe(
    asked: DescribeShareGroupOffsetsRequestGroup, ctx: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    """Answer for a group. Of topics that the principal may not describe, those named are refused, others left out."""
    group_id, asks_all = asked.group_id, asked.topics is None
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=not asks_all)
    topics = ctx.services.metadata.image.topics
    group = DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
    unknown, denied = [], []
    wanted: dict[Uuid, tuple[str, list[int]]] = {}
    if asked.topics is None:
        initialized = await ctx.services.groups.read(
            group_id, lambda core: core.share_admin.initialized_partitions(group_id)
        )
        for topic_id, known in initialized.items():
            image = topics.by_id.get(topic_id)
            if image is not None and (may_see is None or may_see(image.name)):
                wanted[topic_id] = image.name, sorted(known.partitions)
    else:
        share = FairShare(ctx)
        for topic in asked.topics:
            await share.next()
            found = topics.by_name.get(topic.topic_name)
            if may_see is not None and not may_see(topic.topic_name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                denied.append(_without_state(topic.topic_name, topic.partitions, error))
            elif found is None:
                unknown.append(_without_state(topic.topic_name, topic.partitions, ErrorCode.NONE))
            else:
                wanted[found.id] = topic.topic_name, topic.partitions
    if wanted:
        group.topics = await _read(group_id, wanted, ctx)
    group.topics += unknown + denied
    return group


def _without_state(name: str, partitions: list[int], error: ErrorCode) -> DescribeShareGroupOffsetsResponseTopic:
    """A topic that does not exist has no offset; that is no error."""
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each,
                start_offset=UNINITIALIZED_START_OFFSET,
                error_code=error,
                error_message=standard_message(error) if error else None,
            )
            for each in partitions
        ],
    )


async def _read(
    group_id: str, wanted: dict[Uuid, tuple[str, list[int]]], ctx: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    keys = {
        SharePartitionKey(group_id, topic_id, each): TopicPartition(name, each)
        for topic_id, (name, partitions) in wanted.items()
        for each in partitions
    }
    summaries = await persister_of(ctx).read_summaries(group_id, dict.fromkeys(keys, _NO_LEADER_EPOCH))
    begun = {
        key: found
        for key, found in summaries.items()
        if isinstance(found, StateSummary)
        and found.start_offset != UNINITIALIZED_START_OFFSET
        and found.delivery_complete_count != UNKNOWN_COUNT
    }
    ends = await ctx.services.groups.latest_offsets([keys[key] for key in begun])
    topics = []
    for topic_id, (name, partitions) in wanted.items():
        topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
        for each in partitions:
            key = SharePartitionKey(group_id, topic_id, each)
            summary = summaries.get(key)
            end = ends.get(keys[key]) if key in begun else None
            topic.partitions.append(_partition(each, summary, end))
        topics.append(topic)
    return topics


def _partition(
    index: int, summary: StateSummary | ErrorCode | None, end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """A state that cannot be read is the absence of one, as in Kafka; an unknown end of the log is an error."""
    partition = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNINITIALIZED_START_OFFSET, lag=_UNKNOWN_LAG
    )
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=end, error_message=standard_message(end)
        )
    if isinstance(summary, StateSummary):
        partition.start_offset = summary.start_offset
        partition.leader_epoch = summary.leader_epoch
        if end is not None:
            partition.lag = end - summary.start_offset - summary.delivery_complete_count
    return partition
