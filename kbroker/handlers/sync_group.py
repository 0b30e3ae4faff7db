"""SyncGroup (key 14): the leader brings the assignment, every member takes its own.

Served: 0 to 5. 3: static members (KIP-345); 4: flexible; 5: protocol type and name (KIP-559).
"""

from __future__ import annotations

from math import inf

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handler(SyncGroupRequest)
async def handle(request: SyncGroupRequest, ctx: RequestContext) -> SyncGroupResponse:
    """Answer when the leader's assignment is stored, or at once where it is an error."""
    try:
        if ctx.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        groups = ctx.services.groups
        await groups.until_loaded(request.group_id)
        synced = groups.run(request.group_id, lambda core, now_ms: core.sync_group(request, now_ms))
        await ctx.connection.wait_for(synced, inf)
        return synced.result()
    except ApiError as error:
        return SyncGroupResponse(error_code=error.code)
