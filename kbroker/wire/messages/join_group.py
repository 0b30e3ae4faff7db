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
