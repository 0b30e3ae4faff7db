from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    key: Str = field("0-3")
    key_type: Int8 = field("1+")
    coordinator_keys: list[Str] = field("4+")


@struct
class Coordinator:
    key: Str = field("4+")
    node_id: Int32 = field("4+")
    host: Str = field("4+")
    port: Int32 = field("4+")
    error_code: Int16 = field("4+")
    error_message: Str | None = field("4+", nullable="4+", ignorable=True)


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0-3")
    error_message: Str | None = field("1-3", nullable="1-3", ignorable=True)
    node_id: Int32 = field("0-3")
    host: Str = field("0-3")
    port: Int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")
