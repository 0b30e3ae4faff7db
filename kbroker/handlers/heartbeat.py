"""Heartbeat (key 12): a classic member is alive, and learns of rebalances.

Served: 0 to 4. 3: static members (KIP-345); 4: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_group
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handler(HeartbeatRequest)
def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    """Keep the session; the error code tells whether to join again. Never waits: there are many of these."""
    groups = ctx.services.groups
    try:
        if ctx.services.authorizer is not None:
            require_group(ctx, AclOperation.READ, request.group_id)
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        core = groups.loaded_core(request.group_id)
        return HeartbeatResponse(error_code=core.heartbeat(request, groups.now_ms()))
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # The member did its part; its session starts anew after the load.
        return HeartbeatResponse(error_code=error.code)
