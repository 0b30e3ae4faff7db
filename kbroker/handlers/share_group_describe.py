"""ShareGroupDescribe (key 77): epochs, members and assignments of share groups (KIP-932). Served: 1."""

from __future__ import annotations

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.common.share_groups import check_share_groups_enabled
from kbroker.handlers.registration import handler
from kbroker.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handler(ShareGroupDescribeRequest)
async def handle(request: ShareGroupDescribeRequest, ctx: RequestContext) -> ShareGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    groups = ctx.services.groups
    return await answer_described(
        request,
        ctx,
        response=ShareGroupDescribeResponse,
        entry=DescribedGroup,
        check=check_share_groups_enabled,
        describe=lambda group_id: groups.read(group_id, lambda core: core.share_admin.describe(group_id)),
        topics_of=_topics_of,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
    )


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments."""
    return {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
