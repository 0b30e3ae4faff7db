"""ConsumerGroupDescribe (key 69): epochs, members and assignments of KIP-848 groups.

Served: 0 to 1. 1: tells classic members from those of the consumer protocol (KIP-1099).
"""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.consumer_group_heartbeat import check_enabled
from kbroker.handlers.registration import handler
from kbroker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handler(ConsumerGroupDescribeRequest)
async def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> ConsumerGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    groups = ctx.services.groups
    return await answer_described(
        request,
        ctx,
        response=ConsumerGroupDescribeResponse,
        entry=DescribedGroup,
        check=check_enabled,
        describe=lambda group_id: groups.read(group_id, lambda core: core.admin.describe_consumer_group(group_id)),
        topics_of=_topics_of,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
    )


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments, present and to come."""
    return {
        partitions.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for partitions in assignment.topic_partitions
    }
