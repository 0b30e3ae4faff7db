"""UnregisterController (key 94): version 0, flexible from 0."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerRequest(Request["UnregisterControllerResponse"]):
    """Request of UnregisterController (key 94)."""

    controller_id: Int32 = 0


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    """Response to UnregisterController (key 94)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
