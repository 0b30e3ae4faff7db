"""OffsetCommit (key 8): remember how far a group has read.

Served: 2 to 10. 2-4: retention time; 6: leader epoch; 7: static members; 8: flexible; 9: KIP-848's errors;
10: topics by id (KIP-848).
"""

from __future__ import annotations

from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import DelayedResponse, RequestContext
from kbroker.handlers.registration import handler
from kbroker.handlers.repeated_offset_commit import all_failed, learn
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

Refused = dict[tuple[str, bytes], list[OffsetCommitResponsePartition]]
"""Partitions that do not exist, by their topic's name and id."""


@handler(OffsetCommitRequest, learn=learn)
def handle(request: OffsetCommitRequest, ctx: RequestContext) -> OffsetCommitResponse | DelayedResponse:
    """Commit the offsets of the partitions that exist; the others get their error, the rest is served.

    The commits of one turn of the event loop are appended together; the connection reads on meanwhile.
    """
    services, api_version = ctx.services, ctx.api_version
    asked = request.topics
    refused: Refused = {}
    if not _resolve_all(asked, api_version >= 10, services.metadata.image.topics):
        request.topics = _resolve_each(asked, api_version >= 10, services.metadata.image.topics, refused)
        if not request.topics:
            return _with_refused(OffsetCommitResponse(), refused)
    delayed = DelayedResponse()

    def on_stored(response: OffsetCommitResponse | None, error: ApiError | None) -> None:
        if response is None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
            delayed.complete(all_failed(asked, code))
        else:
            delayed.complete(_with_refused(response, refused) if refused else response)

    try:
        services.groups.submit_gathered(
            request.group_id, lambda shard, now_ms: shard.commit_offsets(request, api_version, now_ms), on_stored
        )
    except ApiError as error:
        on_stored(None, error)
    return delayed.response if delayed.done else delayed


def _with_refused(response: OffsetCommitResponse, refused: Refused) -> OffsetCommitResponse:
    # As Kafka does: what was refused here comes before what the coordinator answered.
    answers = {
        key: OffsetCommitResponseTopic(name=key[0], topic_id=Uuid(key[1]), partitions=partitions)
        for key, partitions in refused.items()
    }
    for answer in response.topics:
        found = answers.setdefault((answer.name, bytes(answer.topic_id)), answer)
        if found is not answer:
            found.partitions += answer.partitions
    return OffsetCommitResponse(topics=list(answers.values()))


def _resolve_all(asked: list[OffsetCommitRequestTopic], by_id: bool, topics: Any) -> bool:
    """Fill in the topics' names or ids, if all of it exists, as it nearly always does; whether it does."""
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
    asked: list[OffsetCommitRequestTopic], by_id: bool, topics: Any, refused: Refused
) -> list[OffsetCommitRequestTopic]:
    """The topics with those of their partitions that exist; the others go to ``refused``."""
    valid = []
    for topic in asked:
        kept = _resolve(topic, by_id, topics, refused)
        if kept:
            valid.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=kept))
    return valid


def _resolve(
    topic: OffsetCommitRequestTopic, by_id: bool, topics: Any, refused: Refused
) -> list[OffsetCommitRequestPartition]:
    """Fill in the topic's name or id; returns the partitions that exist."""
    found = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if found is not None:
        topic.name, topic.topic_id = found.name, found.id
    elif not by_id:
        topic.topic_id = ZERO_UUID
    kept: list[OffsetCommitRequestPartition] = []
    for partition in topic.partitions:
        if found is not None and partition.partition_index in found.partitions:
            kept.append(partition)
        else:
            refused.setdefault((topic.name, bytes(topic.topic_id)), []).append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=missing)
            )
    return kept
