from __future__ import annotations

from kbroker.wire.schema import Bool, Bytes, Int16, Int32, Request, Str, field, message, struct


@struct
class JoinGroupRequestProtocol:
    name: Str = ""
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Request["JoinGroupResponse"]):
    group_id: Str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = field("1+", ignorable=True, default=-1)
    member_id: Str = ""
    group_instance_id: Str | None = field("5+", nullable="5+", default=None)
    protocol_type: Str = ""
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: Str | None = field("8+", nullable="8+", ignorable=True, default=None)


@struct
class JoinGroupResponseMember:
    member_id: Str = ""
    group_instance_id: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Str | None = field("7+", nullable="7+", ignorable=True, default=None)
    protocol_name: Str | None = field(nullable="7+")
    leader: Str = ""
    skip_assignment: Bool = field("9+")
    member_id: Str = ""
    members: list[JoinGroupResponseMember] = field()


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
