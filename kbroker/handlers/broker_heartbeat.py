"""BrokerHeartbeat (key 63): a broker keeps its session with the active controller, and learns if it is fenced.

Served: 0 to 2. 1: failed log directories (KIP-858); 2: cordoned log directories (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.errors import ApiError
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.refusals import log_rejection
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.log_ends import Key, LogEnd
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.types import Uuid
from kbroker.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse, LogEndData


@handler(BrokerHeartbeatRequest)
async def handle(request: BrokerHeartbeatRequest, ctx: RequestContext) -> BrokerHeartbeatResponse:
    """Extend the broker's session; unfence it when it has caught up, fence it at its own request."""
    refused: BrokerHeartbeatResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
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
                request.is_last,
                None if request.log_ends is None else _log_ends(request.log_ends),
            ),
            ctx.connection,
        )
    except ApiError as error:
        log_rejection(ctx, f"broker {request.broker_id}", error.code, error.message)
        return BrokerHeartbeatResponse(error_code=error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=state.is_caught_up, is_fenced=state.is_fenced, should_shut_down=state.should_shut_down
    )


def _log_ends(entries: Iterable[LogEndData]) -> dict[Key, LogEnd]:
    return {
        (Uuid(each.topic_id), each.partition): LogEnd(
            each.leader_epoch, each.epoch_start_offset, each.end_offset, each.missing
        )
        for each in entries
    }
