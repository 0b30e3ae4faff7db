from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


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
