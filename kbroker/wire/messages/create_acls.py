from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class AclCreation:
    resource_type: Int8 = 0
    resource_name: Str = ""
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request["CreateAclsResponse"]):
    creations: list[AclCreation] = field()


@struct
class AclCreationResult:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = field()
