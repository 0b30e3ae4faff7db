from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class AlterableConfig:
    name: Str = ""
    value: Str | None = field(nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[AlterableConfig] = field()


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    resource_type: Int8 = 0
    resource_name: Str = ""


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()
