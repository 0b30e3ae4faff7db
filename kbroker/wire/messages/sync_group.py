from __future__ import annotations

from kbroker.wire.schema import Bytes, Int16, Int32, Request, Str, field, message, struct


@struct
class SyncGroupRequestAssignment:
    member_id: Str = ""
    assignment: Bytes = b""


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Request["SyncGroupResponse"]):
    group_id: Str = ""
    generation_id: Int32 = 0
    member_id: Str = ""
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    protocol_type: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    protocol_name: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    assignments: list[SyncGroupRequestAssignment] = field()


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = 0
    protocol_type: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    protocol_name: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    assignment: Bytes = b""
