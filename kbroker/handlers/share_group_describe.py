"""ShareGroupDescribe (key 77): epochs, members and assignments of share groups (KIP-932). Served: 1."""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.described_groups import described_groups
from kbroker.handlers.duplicates_in_request import encoded_size
from kbroker.handlers.registration import handler
from kbroker.handlers.share_groups import check_share_groups_enabled
from kbroker.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handler(ShareGroupDescribeRequest)
async def handle(request: ShareGroupDescribeRequest, ctx: RequestContext) -> ShareGroupDescribeResponse:
    """Describe each group; one that is not there, or not of this protocol, has GROUP_ID_NOT_FOUND."""
    try:
        check_share_groups_enabled(ctx)
    except ApiError as error:
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    version = ctx.api_version

    async def describe(group_id: str) -> DescribedGroup:
        entry: DescribedGroup = await ctx.services.groups.read(
            group_id, lambda core: core.share_admin.describe(group_id)
        )
        return entry

    groups = await described_groups(
        ctx,
        request.group_ids,
        describe=describe,
        failed=lambda group_id, code, message: DescribedGroup(
            group_id=group_id, error_code=code, error_message=message
        ),
        size=lambda entry: encoded_size(ShareGroupDescribeResponse(groups=[entry]), version),
        topics_of=_topics_of,
        hidden="The group has described topic(s) that the client is not authorized to describe.",
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments."""
    return {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
