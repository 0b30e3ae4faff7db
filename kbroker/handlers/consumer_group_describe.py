"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.context import RequestContext
from kbroker.handlers.group_descriptions import describe_groups
from kbroker.handlers.registration import handler
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group, as often as it is named; one that is not there, or not of this protocol, has
    GROUP_ID_NOT_FOUND."""
    try:
        check_enabled(ctx)
    except ApiError as error:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    return ConsumerGroupDescribeResponse(
        groups=await describe_groups(
            request.group_ids,
            ctx,
            describe=_describe,
            topics_of=_topics_of,
            refused=lambda group_id, error: DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            ),
            response_of=lambda group: ConsumerGroupDescribeResponse(groups=[group]),
            wants_operations=request.include_authorized_operations,
        )
    )


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments, present and to come."""
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }


async def _describe(group_id: str, ctx: RequestContext) -> DescribedGroup:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    entry: DescribedGroup = await ctx.services.groups.read(
        group_id, lambda core: core.admin.describe_consumer_group(group_id)
    )
    return entry
