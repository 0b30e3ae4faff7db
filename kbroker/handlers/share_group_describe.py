"""ShareGroupDescribe (key 77): epochs, members and assignments of share groups (KIP-932). Served: 1."""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.group_descriptions import describe_groups
from kbroker.handlers.registration import handler
from kbroker.handlers.share_groups import check_share_groups_enabled
from kbroker.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handler(ShareGroupDescribeRequest)
async def handle(request: ShareGroupDescribeRequest, ctx: RequestContext) -> ShareGroupDescribeResponse:
    """Describe each group, as often as it is named; one that is not there, or not of this protocol, has
    GROUP_ID_NOT_FOUND."""
    try:
        check_share_groups_enabled(ctx)
    except ApiError as error:
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.group_ids]
        )
    return ShareGroupDescribeResponse(
        groups=await describe_groups(
            request.group_ids,
            ctx,
            describe=_describe,
            topics_of=_topics_of,
            refused=lambda group_id, error: DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            ),
            response_of=lambda group: ShareGroupDescribeResponse(groups=[group]),
            wants_operations=request.include_authorized_operations,
        )
    )


def _topics_of(group: DescribedGroup) -> set[str]:
    """The topics of its members' assignments."""
    return {each.topic_name for member in group.members for each in member.assignment.topic_partitions}


async def _describe(group_id: str, ctx: RequestContext) -> DescribedGroup:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    described: DescribedGroup = await ctx.services.groups.read(
        group_id, lambda core: core.share_admin.describe(group_id)
    )
    return described
