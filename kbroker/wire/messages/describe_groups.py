from __future__ import annotations

from kbroker.wire.schema import Bool, Bytes, Int16, Int32, Request, Str, field, message, struct


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    groups: list[Str] = field()
    include_authorized_operations: Bool = field("3+")


@struct
class DescribedGroupMember:
    member_id: Str = ""
    group_instance_id: Str | None = field("4+", nullable="4+", ignorable=True, default=None)
    client_id: Str = ""
    client_host: Str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Str | None = field("6+", nullable="6+", default=None)
    group_id: Str = ""
    group_state: Str = ""
    protocol_type: Str = ""
    protocol_data: Str = ""
    members: list[DescribedGroupMember] = field()
    authorized_operations: Int32 = field("3+", default=-2147483648)


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribedGroup] = field()
