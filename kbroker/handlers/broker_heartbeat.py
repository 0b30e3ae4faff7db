"""BrokerHeartbeat (key 63): a broker shows the active controller that it lives; it hears whether it is fenced.

Served: 0 to 2. 1: log directories that have failed (KIP-858); 2: those that take no new replicas (KIP-1066).
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.context import RequestContext
from kbroker.handlers.refusals import tell_refusal
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.types import Uuid
from kbroker.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@handler(BrokerHeartbeatRequest)
async def handle(request: BrokerHeartbeatRequest, ctx: RequestContext) -> BrokerHeartbeatResponse:
    """Extend the broker's session; unfence it when it has caught up, fence it when it asks for that."""
    try:
        state = await ctx.services.metadata.heartbeat(
            Heartbeat(
                request.broker_id,
                request.broker_epoch,
                request.current_metadata_offset,
                request.want_fence,
                request.want_shut_down,
                tuple(Uuid(directory) for directory in request.offline_log_dirs),
                None if request.cordoned_log_dirs is None else tuple(map(Uuid, request.cordoned_log_dirs)),
            ),
            ctx.connection,
        )
    except ApiError as error:
        tell_refusal(ctx, f"broker {request.broker_id}", error.code, error.message)
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=state.is_caught_up, is_fenced=state.is_fenced, should_shut_down=state.should_shut_down
    )
