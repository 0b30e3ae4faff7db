from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


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
