from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    resource_types: list[Int8] = field("1+")


@struct
class ConfigResource:
    resource_name: Str = ""
    resource_type: Int8 = field("1+", ignorable=True, default=16)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = field()
