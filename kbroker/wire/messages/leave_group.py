from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


@struct
class MemberIdentity:
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+", default=None)
    reason: Str | None = field("5+", nullable="5+", ignorable=True, default=None)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    group_id: Str = ""
    member_id: Str = field("0-2")
    members: list[MemberIdentity] = field("3+")


@struct
class MemberResponse:
    member_id: Str = field("3+")
    group_instance_id: Str | None = field("3+", nullable="3+")
    error_code: Int16 = field("3+")


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = 0
    members: list[MemberResponse] = field("3+")
