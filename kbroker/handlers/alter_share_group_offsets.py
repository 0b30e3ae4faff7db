"""AlterShareGroupOffsets (key 91): begin partitions of a share group without members at other offsets. Served: 0."""

from __future__ import annotations

from kbroker.cores.groups.share.requests import StateInitialization
from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.common.share_groups import check_share_groups_enabled, persister_of
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid
from kbroker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


@handler(AlterShareGroupOffsetsRequest)
async def handle(request: AlterShareGroupOffsetsRequest, ctx: RequestContext) -> AlterShareGroupOffsetsResponse:
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
    response, wanted = await groups.run(request.group_id, lambda core, now_ms: core.share_admin.alter_offsets(request))
    if not wanted.partitions:
        return response
    errors = await persister.initialize(wanted.group_id, wanted.partitions)
    for topic in response.responses:
        for partition in topic.partitions:
            if not partition.error_code:
                key = SharePartitionKey(wanted.group_id, Uuid(topic.topic_id), partition.partition_index)
                partition.error_code = errors.get(key, ErrorCode.NONE)
    await groups.run(request.group_id, lambda core, now_ms: core.share_admin.state_initialized(wanted, errors))
    return response
