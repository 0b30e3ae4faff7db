"""Answers of DescribeShareGroupOffsets to those who want to hear what is in flight. Not an API itself.

The leader of a share partition answers from its memory, by tagged fields of kbroker's own
(docs/decisions/0026-own-tagged-fields.md). For a partition that it does not lead it says NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.cores.share_partitions.in_flight_view import InFlightView
from kbroker.cores.share_partitions.requests import TopicIdPartition
from kbroker.cores.share_state import UNINITIALIZED_START_OFFSET, SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import May, may_each
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.common.share_acknowledgements import share_partitions
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    InFlight,
    InFlightRange,
)

_RANGES_A_PART: Final = 16
"""Ranges that take about as long as another part of a request."""


class InFlightAnswers:
    """The answers of one request, which are bounded together. Each partition is looked at once."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._shares = share_partitions(ctx)
        self._left = ctx.budgets.in_flight_ranges
        self._answered: set[SharePartitionKey] = set()
        self._read_here: dict[str, list[TopicIdPartition]] | None = None
        self._turns = FairShare(ctx)

    async def answer(self, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
        """The answer for a group: the partitions that are named, or else all that its members have read here.

        Of topics that the principal may not describe, those named are refused, others left out.
        """
        group = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        asks_all = asked.topics is None
        may_see = may_each(self._ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, audits_denial=not asks_all)
        named = self._read_by(asked.group_id, may_see) if asked.topics is None else None
        for name, partitions in named or ((each.topic_name, each.partitions) for each in asked.topics or ()):
            await self._turns.next()
            image = self._ctx.services.metadata.image.topics.by_name.get(name)
            error = None
            if may_see is not None and not may_see(name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic_id = ZERO_UUID if image is None or error else image.id
            topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
            for index in partitions:
                await self._turns.next()
                answer = _refused(index, error) if error else await self._partition(asked.group_id, topic_id, index)
                topic.partitions.append(answer)
            group.topics.append(topic)
        return group

    def _read_by(self, group_id: str, may_see: May | None) -> list[tuple[str, list[int]]]:
        """Name and partitions of each topic that members of the group have read here, and the principal may see."""
        topics = self._ctx.services.metadata.image.topics.by_id
        if self._read_here is None:
            self._read_here = self._shares.read_here()
        found: dict[str, list[int]] = {}
        for topic_id, partition in sorted(self._read_here.pop(group_id, ())):
            image = topics.get(topic_id)
            if image is not None and (may_see is None or may_see(image.name)):
                found.setdefault(image.name, []).append(partition)
        return list(found.items())

    async def _partition(self, group_id: str, topic_id: Uuid, index: int) -> DescribeShareGroupOffsetsResponsePartition:
        key = SharePartitionKey(group_id, topic_id, index)
        if key in self._answered:
            return _refused(index, ErrorCode.INVALID_REQUEST, "The request names the partition twice.")
        self._answered.add(key)
        try:
            wanted = TopicIdPartition(topic_id, index)
            view = self._shares.in_flight(group_id, wanted, min(self._ctx.budgets.in_flight_of_partition, self._left))
        except ApiError as error:
            return _refused(index, error.code, error.message)
        if view is None:
            view = InFlightView(UNINITIALIZED_START_OFFSET, [], 0)
        self._left -= len(view.ranges)
        await self._turns.next((len(view.ranges) + view.left_out) // _RANGES_A_PART)
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=view.start_offset, in_flight=_in_flight(view)
        )


def _refused(index: int, error: ErrorCode, message: str | None = None) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=UNINITIALIZED_START_OFFSET,
        error_code=error,
        error_message=message or standard_message(error),
    )


def _in_flight(view: InFlightView) -> InFlight:
    ranges: Iterable[InFlightRange] = (
        InFlightRange(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.state,
            delivery_count=each.delivery_count,
            member_id=each.member_id,
            lock_ms_left=-1 if each.lock_ms_left is None else each.lock_ms_left,
        )
        for each in view.ranges
    )
    return InFlight(ranges=list(ranges), ranges_left_out=view.left_out)
