"""Offsets of share groups: described, altered and deleted.

DescribeShareGroupOffsets (key 90): where share groups are in their partitions. Served: 0 to 1. 1: lag (KIP-1226).

A request that wants to hear what is in flight, by a tag of kbroker's own, is answered by `in_flight_answers`.

AlterShareGroupOffsets (key 91): begin partitions of a share group without members at other offsets. Served: 0.

DeleteShareGroupOffsets (key 92): forget the states of topics of a share group without members. Served: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cores.groups.share.admin import OffsetsDeletion
from kbroker.cores.groups.share.requests import StateInitialization
from kbroker.cores.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey, StateSummary
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_each, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.common.share_groups import check_share_groups_enabled, delete_states, persister_of
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
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
async def handle_describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, ctx: RequestContext
) -> DescribeShareGroupOffsetsResponse:
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


@handler(AlterShareGroupOffsetsRequest)
async def handle_alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, ctx: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Alter what may be altered; each partition has its outcome. Topics that are refused come first, as in Kafka."""
    try:
        check_share_groups_enabled(ctx)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, standard_message(ErrorCode.INVALID_GROUP_ID))
        refused, allowed = [], []
        share = FairShare(ctx)
        for topic in request.topics:
            await share.next()
            error = _refusal(topic.topic_name, ctx)
            if error:
                refused.append(_refused(topic, error))
            else:
                allowed.append(topic)
        response = await _alter(AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed), ctx)
    except ApiError as error:
        message = error.message or standard_message(error.code)
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=message)
    if response.error_code:
        response.error_message = standard_message(ErrorCode.of(response.error_code))
        return response
    for each in response.responses:
        for partition in each.partitions:
            if partition.error_code:
                partition.error_message = standard_message(ErrorCode.of(partition.error_code))
    response.responses[:0] = refused
    return response


def _refusal(topic: str, ctx: RequestContext) -> ErrorCode:
    if not may(ctx, AclOperation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic not in ctx.services.metadata.image.topics.by_name:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _refused(topic: AlterShareGroupOffsetsRequestTopic, error: ErrorCode) -> AlterShareGroupOffsetsResponseTopic:
    message = standard_message(error)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=error, error_message=message
            )
            for each in topic.partitions
        ],
    )


async def _alter(request: AlterShareGroupOffsetsRequest, ctx: RequestContext) -> AlterShareGroupOffsetsResponse:
    groups, persister = ctx.services.groups, persister_of(ctx)
    await groups.until_loaded(request.group_id)
    response: AlterShareGroupOffsetsResponse
    wanted: StateInitialization
    response, wanted = await groups.run(
        request.group_id, lambda core, now_ms: core.share_admin.alter_offsets(request, now_ms)
    )
    if not wanted.partitions:
        return response
    errors = await persister.initialize(wanted.group_id, wanted.partitions)
    for topic in response.responses:
        for partition in topic.partitions:
            if not partition.error_code:
                key = SharePartitionKey(wanted.group_id, Uuid(topic.topic_id), partition.partition_index)
                partition.error_code = errors.get(key, ErrorCode.NONE)
    await groups.run(
        request.group_id, lambda core, now_ms: core.share_admin.state_initialized(wanted, errors, as_a_whole=False)
    )
    return response


@handler(DeleteShareGroupOffsetsRequest)
async def handle_delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, ctx: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Delete the states of each topic, or say why not. Topics that the principal may not read come first."""
    try:
        check_share_groups_enabled(ctx)
        require_group(ctx, AclOperation.DELETE, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        denied, allowed = [], []
        share = FairShare(ctx)
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            await share.next()
            if may(ctx, AclOperation.READ, ResourceType.TOPIC, name):
                allowed.append(name)
            else:
                denied.append(_outcome(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return DeleteShareGroupOffsetsResponse(responses=denied + await _delete(request.group_id, allowed, ctx))
    except ApiError as error:
        message = error.message or standard_message(error.code)
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=message)


async def _delete(group_id: str, names: list[str], ctx: RequestContext) -> list[DeleteShareGroupOffsetsResponseTopic]:
    groups = ctx.services.groups
    await groups.until_loaded(group_id)
    deletion: OffsetsDeletion = await groups.run(
        group_id, lambda core, now_ms: core.share_admin.begin_offsets_deletion(group_id, names)
    )
    outcomes = [_outcome(name, error, message) for name, (error, message) in deletion.errors.items()]
    if deletion.names:
        errors = await delete_states(deletion.request, ctx)
        outcomes += [_outcome(name, errors[topic_id], topic_id=topic_id) for topic_id, name in deletion.names.items()]
    return outcomes


def _outcome(
    name: str, error: ErrorCode, message: str | None = None, topic_id: Uuid = ZERO_UUID
) -> DeleteShareGroupOffsetsResponseTopic:
    if error and message is None:
        message = standard_message(error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error, error_message=message
    )
