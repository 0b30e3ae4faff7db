"""OffsetFetch (key 9): how far groups have read.

Served: 1 to 10. 2: all partitions; 5: leader epoch; 6: flexible; 7: require_stable; 8: several groups (KIP-709);
9: member epoch (KIP-848); 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.duplicates_in_request import DuplicateAnswers, encoded_size
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import LargeAnswers, handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_PARTITIONS_IN_A_PART = 8
"""Partitions of a group that take as long as what `FairShare` counts as a part."""


def _lists_of(response: OffsetFetchResponse) -> Iterator[list[Any]]:
    for group in response.groups:
        for topic in group.topics:
            yield topic.partitions
        yield group.topics
    yield response.groups
    for only in response.topics:
        yield only.partitions
    yield response.topics


@handler(OffsetFetchRequest, large_answers=LargeAnswers(_lists_of))
async def handle(request: OffsetFetchRequest, ctx: RequestContext) -> OffsetFetchResponse:
    """Answer for each group; below version 8 there is one, in the response's own fields."""
    version = ctx.api_version
    duplicates = _Duplicates(ctx)
    if version >= 8:
        response = OffsetFetchResponse()
        share = FairShare(ctx)
        for asked in request.groups:
            await share.next()
            group = await _fetch_bounded(asked, request.require_stable, ctx, duplicates)
            response.groups.append(group)
            await share.next(sum(len(topic.partitions) for topic in group.topics) // _PARTITIONS_IN_A_PART)
        return response
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    only = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    group = await _fetch_bounded(only, request.require_stable, ctx, duplicates)
    return _single(group, topics, version)


class _Duplicates:
    """Bounds what one response says twice: all offsets of a group, and the metadata of a partition.

    Four bytes of a request ask for metadata of up to ``offset.metadata.max.bytes``.
    """

    def __init__(self, ctx: RequestContext) -> None:
        most, version = ctx.budgets.repeated_bytes, ctx.api_version
        self.groups = DuplicateAnswers[OffsetFetchResponseGroup](
            most, lambda group: encoded_size(OffsetFetchResponse(groups=[group]), version)
        )
        self._metadata = DuplicateAnswers[int](most, int)

    def count(self, group: OffsetFetchResponseGroup) -> None:
        """`ApiError` if the partitions of ``group`` were answered before, with too much metadata."""
        for topic in group.topics:
            for partition in topic.partitions:
                key = group.group_id, topic.name, partition.partition_index
                if partition.metadata and self._metadata.again(key) is None:
                    self._metadata.add(key, len(partition.metadata))


async def _fetch_bounded(
    group: OffsetFetchRequestGroup, require_stable: bool, ctx: RequestContext, duplicates: _Duplicates
) -> OffsetFetchResponseGroup:
    whole = group.group_id, group.member_id, group.member_epoch
    try:
        require_group(ctx, AclOperation.DESCRIBE, group.group_id)
        fetched = duplicates.groups.again(whole) if group.topics is None else None
        if fetched is None:
            fetched = await _fetch(group, require_stable, ctx)
            if group.topics is None:
                duplicates.groups.add(whole, fetched)
            else:
                duplicates.count(fetched)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    return fetched


async def _fetch(group: OffsetFetchRequestGroup, require_stable: bool, ctx: RequestContext) -> OffsetFetchResponseGroup:
    by_id, asks_all = ctx.api_version >= 10, group.topics is None
    image_topics = ctx.services.metadata.image.topics
    may_see = may_each(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=not asks_all)
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None and (by_id or may_see is not None):
        known = []
        share = FairShare(ctx)
        for topic in group.topics:
            await share.next()
            found = image_topics.by_id.get(topic.topic_id) if by_id else None
            if found is not None:
                topic.name = found.name
            if by_id and found is None:
                refused.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            elif may_see is not None and not may_see(topic.name):
                refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                known.append(topic)
        group.topics = known
    ids = {
        topic.name: image_topics.by_name[topic.name].id
        for topic in group.topics or ()
        if topic.name in image_topics.by_name
    }
    fetched: OffsetFetchResponseGroup = await ctx.services.groups.read(
        group.group_id, lambda core: core.fetch_offsets(group, ids, require_stable)
    )
    if asks_all and may_see is not None:
        fetched.topics = [entry for entry in fetched.topics if may_see(entry.name)]
    if by_id:
        for entry in fetched.topics:
            current = image_topics.by_name.get(entry.name)
            entry.topic_id = ZERO_UUID if current is None else current.id
        fetched.topics = [entry for entry in fetched.topics if entry.topic_id != ZERO_UUID]
    fetched.topics += refused
    return fetched


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _single(
    group: OffsetFetchResponseGroup, asked: list[OffsetFetchRequestTopics] | None, api_version: int
) -> OffsetFetchResponse:
    """The response of the versions for one group; version 1 has errors of partitions only."""
    if group.error_code and api_version < 2:
        partitions = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        committed_leader_epoch=-1,
                        metadata="",
                        error_code=group.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked or ()
        ]
        return OffsetFetchResponse(topics=partitions)
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
