"""OffsetDelete (key 47): forget offsets of topics that a group no longer reads. Served: 0 (KIP-496)."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.turns import Turns
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
    topics = ctx.services.metadata.image.topics
    valid, unknown = [], []
    turns = Turns()
    for topic in request.topics:
        await turns.next()
        image = topics.by_name.get(topic.name)
        existing: set[int] = set() if image is None else set(image.partitions)
        known = [partition for partition in topic.partitions if partition.partition_index in existing]
        missing = [
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
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
        response: OffsetDeleteResponse = await ctx.services.groups.submit(
            request.group_id, lambda shard, now_ms: shard.delete_offsets(wanted)
        )
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    # As Kafka does: what was refused here comes before what the coordinator answered.
    answers = {entry.name: entry for entry in unknown}
    for answer in response.topics:
        found = answers.setdefault(answer.name, answer)
        if found is not answer:
            found.partitions += answer.partitions
    return OffsetDeleteResponse(topics=list(answers.values()))
