"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group, and get the assignment (KIP-932). Served: 1."""

from __future__ import annotations

from kbroker.cores.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import allowed_names, require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.share_groups import check_share_groups_enabled
from kbroker.handlers.join_group import client_of
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_LONGEST_MEMBER_ID = 36


@handler(ShareGroupHeartbeatRequest)
async def handle(request: ShareGroupHeartbeatRequest, ctx: RequestContext) -> ShareGroupHeartbeatResponse:
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
