"""LeaveGroup (key 13): members go, one by one or in a batch.

Served: 0 to 5. 3: several members, by instance id too (KIP-345); 4: flexible; 5: reason (KIP-800), which is logged.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.join_group import log_reason
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse


@handler(LeaveGroupRequest)
async def handle(request: LeaveGroupRequest, ctx: RequestContext) -> LeaveGroupResponse:
    """Remove the members; each has its own error from version 3 on."""
    batched = ctx.api_version >= 3
    identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    try:
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        members = await groups.run(
            request.group_id, lambda core, now_ms: core.leave_group(request.group_id, identities, now_ms)
        )
    except ApiError as error:
        if batched and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            # For a group that does not exist each member has the error.
            return LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error.code
                    )
                    for each in identities
                ]
            )
        return LeaveGroupResponse(error_code=error.code)
    for identity, left in zip(identities, members, strict=False):
        if not left.error_code:
            log_reason(request.group_id, left.member_id or left.group_instance_id or "", "leaves", identity.reason)
    if batched:
        return LeaveGroupResponse(members=members)
    return LeaveGroupResponse(error_code=members[0].error_code)
