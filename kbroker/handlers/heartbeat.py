"""Heartbeat (key 12): a classic member is alive, and learns of rebalances.

Served: 0 to 4. 3: static members (KIP-345); 4: flexible.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import Defer, RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.alike import AlikeRequests, responses_like
from kbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class RepeatedHeartbeat:
    """The heartbeat that a member sends again and again, and the answer that all is well."""

    collects: ClassVar[bool] = False

    def __init__(self, frame: memoryview, request: HeartbeatRequest, ctx: RequestContext) -> None:
        self._alike = AlikeRequests(frame)
        self._request = request
        self._ctx = ctx
        self._all_well = responses_like(ctx.header.api_key, ctx.header.api_version, HeartbeatResponse())

    def answer(self, frame: memoryview, defer: Defer | None = None) -> bytes | None:
        """The same response if all is still well; ``None`` leaves it to ``handle``: twice is as once."""
        found = self._alike.match(frame)
        if found is None or handle(self._request, self._ctx).error_code != ErrorCode.NONE:
            return None
        return self._all_well(*found)


def learn(frame: memoryview, request: HeartbeatRequest, response: Any, ctx: RequestContext) -> RepeatedHeartbeat | None:
    """What serves the next heartbeats of this connection; ``None`` after one that was refused."""
    if not isinstance(response, HeartbeatResponse) or response.error_code != ErrorCode.NONE:
        return None
    return RepeatedHeartbeat(frame, request, ctx)


@handler(HeartbeatRequest, learn=learn)
def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    """Keep the session; the error code tells whether to join again. Never waits: there are many of these."""
    groups = ctx.services.groups
    try:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        core = groups.shard_now(request.group_id).core
        return HeartbeatResponse(error_code=core.heartbeat(request, groups.now_ms()))
    except ApiError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()  # The member did its part; its session starts anew after the load.
        return HeartbeatResponse(error_code=error.code)
