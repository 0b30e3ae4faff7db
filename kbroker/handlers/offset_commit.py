"""OffsetCommit (key 8): remember how far a group has read.

Served: 2 to 10. 2-4: retention time; 6: leader epoch; 7: static members; 8: flexible; 9: KIP-848's errors;
10: topics by id (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import May, may_each, prefetch_permissions, require_group, would_allow
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from kbroker.cores.coordinator.result import CoordinatorResult
    from kbroker.cores.groups.group_coordinator import GroupCoordinator
    from kbroker.raft_metadata.image import TopicsImage

Refused = dict[tuple[str, bytes], list[OffsetCommitResponsePartition]]
"""Partitions that do not exist or that the principal may not read, by their topic's name and id."""


async def _prefetch_permissions(request: OffsetCommitRequest, ctx: RequestContext) -> None:
    if not would_allow(ctx, AclOperation.READ, ResourceType.GROUP, request.group_id):
        return  # nothing is asked about the topics then
    topics = ctx.services.metadata.image.topics
    if ctx.api_version >= 10:
        names = (found.name for topic in request.topics if (found := topics.by_id.get(topic.topic_id)) is not None)
    else:
        names = (topic.name for topic in request.topics)
    await prefetch_permissions(ctx, AclOperation.READ, ResourceType.TOPIC, names)


@handler(OffsetCommitRequest, prefetch_permissions=_prefetch_permissions)
def handle(request: OffsetCommitRequest, ctx: RequestContext) -> OffsetCommitResponse | Later[OffsetCommitResponse]:
    """Commit the offsets of the partitions that exist; the others get their error, the rest is served.

    The commits of one round of the poller are appended together, or those of one turn of the event loop; the connection
    reads on meanwhile.
    """
    services, api_version = ctx.services, ctx.api_version
    asked = request.topics
    refused: Refused = {}
    may_read: May | None = None
    if services.authorizer is not None:
        try:
            require_group(ctx, AclOperation.READ, request.group_id)
        except ApiError as error:
            return all_failed(asked, error.code)
        may_read = may_each(ctx, AclOperation.READ, ResourceType.TOPIC)
    if not _resolve_all(asked, api_version >= 10, services.metadata.image.topics) or (
        may_read is not None and not all(may_read(topic.name) for topic in asked)
    ):
        request.topics = _resolve_each(asked, api_version >= 10, services.metadata.image.topics, refused, may_read)
        if not request.topics:
            return _with_refused(OffsetCommitResponse(), refused)

    def commit(core: GroupCoordinator, now_ms: int) -> CoordinatorResult[OffsetCommitResponse]:
        result = core.commit_offsets(request, api_version, now_ms, services.groups.commit_time_ms(now_ms))
        if refused:
            result.response = _with_refused(result.response, refused)
        return result

    reply = CommitReply()
    reply.asked = asked
    try:
        services.groups.run(request.group_id, commit, gather=True, round=ctx.connection.hold_replies(), outcome=reply)
    except ApiError as error:
        return all_failed(asked, error.code)
    return reply.value if reply.done else reply


class CommitReply(Later[Any]):
    """The reply to an OffsetCommit. An error becomes a response that has it for each partition of ``asked``."""

    __slots__ = ("asked",)

    asked: list[OffsetCommitRequestTopic]

    def fail(self, error: ApiError) -> None:
        """Give the response with the error."""
        self.set(all_failed(self.asked, error.code))


def all_failed(asked: list[OffsetCommitRequestTopic], error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


def _with_refused(response: OffsetCommitResponse, refused: Refused) -> OffsetCommitResponse:
    # As in Kafka: the partitions refused here come before those that the coordinator answered.
    answers = {
        key: OffsetCommitResponseTopic(name=key[0], topic_id=Uuid(key[1]), partitions=partitions)
        for key, partitions in refused.items()
    }
    for answer in response.topics:
        found = answers.setdefault((answer.name, bytes(answer.topic_id)), answer)
        if found is not answer:
            found.partitions += answer.partitions
    return OffsetCommitResponse(topics=list(answers.values()))


def _resolve_all(asked: list[OffsetCommitRequestTopic], by_id: bool, topics: TopicsImage) -> bool:
    """Fill in the topics' names or ids if all partitions exist, as they nearly always do. Returns whether they do."""
    for topic in asked:
        found = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        if found is None or not topic.partitions:
            return False
        for partition in topic.partitions:
            if partition.partition_index not in found.partitions:
                return False
        topic.name, topic.topic_id = found.name, found.id
    return bool(asked)


def _resolve_each(
    asked: list[OffsetCommitRequestTopic], by_id: bool, topics: TopicsImage, refused: Refused, may_read: May | None
) -> list[OffsetCommitRequestTopic]:
    """The topics with those of their partitions that exist and may be read; the others go to ``refused``."""
    valid = []
    for topic in asked:
        kept = _resolve(topic, by_id, topics, refused, may_read)
        if kept:
            valid.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=kept))
    return valid


def _resolve(
    topic: OffsetCommitRequestTopic, by_id: bool, topics: TopicsImage, refused: Refused, may_read: May | None
) -> list[OffsetCommitRequestPartition]:
    """Fill in the topic's name or id; returns the partitions that exist and may be read."""
    found = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if found is not None:
        topic.name, topic.topic_id = found.name, found.id
    elif not by_id:
        topic.topic_id = ZERO_UUID
    if may_read is not None and (found is not None or not by_id) and not may_read(topic.name):
        found, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED  # whether it exists is not told
    kept: list[OffsetCommitRequestPartition] = []
    for partition in topic.partitions:
        if found is not None and partition.partition_index in found.partitions:
            kept.append(partition)
        else:
            refused.setdefault((topic.name, bytes(topic.topic_id)), []).append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=missing)
            )
    return kept
