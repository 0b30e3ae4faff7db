"""OffsetDelete (key 47): forget offsets of topics that a group no longer reads. Served: 0 (KIP-496)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handler(OffsetDeleteRequest)
async def handle(request: OffsetDeleteRequest, ctx: RequestContext) -> OffsetDeleteResponse:
    """Delete the offsets of partitions that exist; the others get UNKNOWN_TOPIC_OR_PARTITION."""
    try:
        require_group(ctx, AclOperation.DELETE, request.group_id)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    may_read = may_each(ctx, AclOperation.READ, ResourceType.TOPIC)
    topics = ctx.services.metadata.image.topics
    valid, unknown = [], []
    share = FairShare(ctx)
    for topic in request.topics:
        await share.next()
        allowed = may_read is None or may_read(topic.name)
        image = topics.by_name.get(topic.name) if allowed else None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        existing: set[int] = set() if image is None else set(image.partitions)
        known = [partition for partition in topic.partitions if partition.partition_index in existing]
        missing = [
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
            if partition.partition_index not in existing
        ]
        if known:
            valid.append(OffsetDeleteRequestTopic(name=topic.name, partitions=known))
        if missing:
            unknown.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
    wanted = OffsetDeleteRequest(group_id=request.group_id, topics=valid)
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        response = await groups.run(request.group_id, lambda core, now_ms: core.delete_offsets(wanted))
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    # As in Kafka: the partitions refused here come before those that the coordinator answered.
    answers = {entry.name: entry for entry in unknown}
    for answer in response.topics:
        found = answers.setdefault(answer.name, answer)
        if found is not answer:
            found.partitions += answer.partitions
    return OffsetDeleteResponse(topics=list(answers.values()))
