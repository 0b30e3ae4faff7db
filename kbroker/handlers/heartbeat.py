"""Heartbeat (key 12): a classic member is alive, and learns of rebalances.

Served: 0 to 4. 3: static members (KIP-345); 4: flexible.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import Defer, RequestContext
from kbroker.handlers.registration import Versions, handler
from kbroker.wire.framing import response_parts
from kbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = Versions(0, 4)

_SIZE_AND_CORRELATION_ID = Struct(">ii")


class RepeatedHeartbeat:
    """The heartbeat that a member sends again and again, and the answer that all is well."""

    def __init__(self, frame: memoryview, request: HeartbeatRequest, ctx: RequestContext) -> None:
        self._key_and_version = bytes(frame[:4])
        self._rest = bytes(frame[8:])
        self._request = request
        self._ctx = ctx
        reply = b"".join(response_parts(ctx.header.api_key, ctx.header.api_version, 0, HeartbeatResponse()))  # type: ignore[arg-type]
        self._size = len(reply) - 4
        self._all_well = reply[8:]

    def answer(self, frame: memoryview, correlation_id: int, _: Defer | None = None) -> bytes | None:
        """The same response if all is still well; ``None`` leaves it to ``handle``: twice is as once."""
        if frame[8:].tobytes() != self._rest or frame[:4] != self._key_and_version:
            return None
        if handle(self._request, self._ctx).error_code != ErrorCode.NONE:
            return None
        return _SIZE_AND_CORRELATION_ID.pack(self._size, correlation_id) + self._all_well


def learn(frame: memoryview, request: HeartbeatRequest, response: Any, ctx: RequestContext) -> RepeatedHeartbeat | None:
    """What serves the next heartbeats of this connection; ``None`` after one that was refused."""
    if not isinstance(response, HeartbeatResponse) or response.error_code != ErrorCode.NONE:
        return None
    return RepeatedHeartbeat(frame, request, ctx)


@handler(HeartbeatRequest, versions=VERSIONS, learn=learn)
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
