"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.context import RequestContext
from kbroker.handlers.described_groups import described_groups
from kbroker.handlers.duplicates_in_request import encoded_size
from kbroker.handlers.registration import handler
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    try:
        check_enabled(ctx)
    except ApiError as error:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    version = ctx.api_version

    async def describe(group_id: str) -> DescribedGroup:
        entry: DescribedGroup = await ctx.services.groups.read(
            group_id, lambda core: core.admin.describe_consumer_group(group_id)
        )
        return entry

    groups = await described_groups(
        ctx,
        request.group_ids,
        describe=describe,
        failed=lambda group_id, code, message: DescribedGroup(
            group_id=group_id, error_code=code, error_message=message
        ),
        size=lambda entry: encoded_size(ConsumerGroupDescribeResponse(groups=[entry]), version),
        topics_of=_topics_of,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments, present and to come."""
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
