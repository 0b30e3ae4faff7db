from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class DescribeConfigsResource:
    resource_type: Int8 = 0
    resource_name: Str = ""
    configuration_keys: list[Str] | None = field(nullable="0+")


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: Bool = field("1+")
    include_documentation: Bool = field("3+")


@struct
class DescribeConfigsSynonym:
    name: Str = field("1+")
    value: Str | None = field("1+", nullable="0+")
    source: Int8 = field("1+")


@struct
class DescribeConfigsResourceResult:
    name: Str = ""
    value: Str | None = field(nullable="0+")
    read_only: Bool = False
    config_source: Int8 = field("1+", ignorable=True, default=-1)
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = field("1+", ignorable=True)
    config_type: Int8 = field("3+", ignorable=True)
    documentation: Str | None = field("3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[DescribeConfigsResourceResult] = field()


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = field()


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


@struct
class IncrementalAlterableConfig:
    name: Str = ""
    config_operation: Int8 = 0
    value: Str | None = field(nullable="0+")


@struct
class IncrementalAlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[IncrementalAlterableConfig] = field()


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    resources: list[IncrementalAlterConfigsResource] = field()
    validate_only: Bool = False


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()


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
