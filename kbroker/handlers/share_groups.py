"""Members of share groups: their heartbeats and descriptions (KIP-932).

ShareGroupHeartbeat (key 76): join, stay in and leave a share group, and get the assignment (KIP-932). Served: 1.

ShareGroupDescribe (key 77): epochs, members and assignments of share groups (KIP-932). Served: 1.
"""

from __future__ import annotations

from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.classic_groups import client_of
from kbroker.handlers.common.authorization import allowed_names, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.described_groups import answer_described
from kbroker.handlers.common.share_groups import check_share_groups_enabled
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.share_groups import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_LONGEST_MEMBER_ID = 36


@handler(ShareGroupHeartbeatRequest)
async def handle_share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, ctx: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Answer with the member's epoch and, where it is new to the member, its assignment."""
    try:
        check_share_groups_enabled(ctx)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not 0 < len(request.member_id) <= _LONGEST_MEMBER_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        subscribed = dict.fromkeys(request.subscribed_topic_names or ())
        if len(await allowed_names(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, subscribed)) < len(subscribed):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _validate(request)
        client = client_of(ctx)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        return await groups.run(request.group_id, lambda core, now_ms: core.share.heartbeat(request, client, now_ms))
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _validate(request: ShareGroupHeartbeatRequest) -> None:
    """`ApiError` INVALID_REQUEST (Kafka's ``GroupCoordinatorService``)."""
    for value, name in ((request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == 0:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


@handler(ShareGroupDescribeRequest)
async def handle_share_group_describe(
    request: ShareGroupDescribeRequest, ctx: RequestContext
) -> ShareGroupDescribeResponse:
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
