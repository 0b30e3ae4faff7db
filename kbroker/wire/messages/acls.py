from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    resource_type_filter: Int8 = 0
    resource_name_filter: Str | None = field(nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field(nullable="0+")
    host_filter: Str | None = field(nullable="0+")
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class AclDescription:
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DescribeAclsResource:
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field()


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    resources: list[DescribeAclsResource] = field()


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


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = 0
    resource_name_filter: Str | None = field(nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: Str | None = field(nullable="0+")
    host_filter: Str | None = field(nullable="0+")
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    filters: list[DeleteAclsFilter] = field()


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = field("1+", default=3)
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field()


@message(api_key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field()
