from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Request["HeartbeatResponse"]):
    group_id: Str = ""
    generation_id: Int32 = 0
    member_id: Str = ""
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = 0
