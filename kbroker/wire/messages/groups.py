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


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    states_filter: list[Str] = field("4+")
    types_filter: list[Str] = field("5+")


@struct
class ListedGroup:
    group_id: Str = ""
    protocol_type: Str = ""
    group_state: Str = field("4+", ignorable=True)
    group_type: Str = field("5+", ignorable=True)


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = 0
    groups: list[ListedGroup] = field()


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    groups_names: list[Str] = field()


@struct
class DeletableGroupResult:
    group_id: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field("3+", nullable="3+", ignorable=True, default=None)


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = field()
