"""DescribeConfigs (key 32): versions 1-4, flexible from 4."""

from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class DescribeConfigsResource:
    """Part of DescribeConfigsRequest."""

    resource_type: Int8 = 0
    resource_name: Str = ""
    configuration_keys: list[Str] | None = field(nullable="0+")


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Request of DescribeConfigs (key 32)."""

    resources: list[DescribeConfigsResource] = field()
    include_synonyms: Bool = field("1+")
    include_documentation: Bool = field("3+")


@struct
class DescribeConfigsSynonym:
    """Part of DescribeConfigsResponse."""

    name: Str = field("1+")
    value: Str | None = field("1+", nullable="0+")
    source: Int8 = field("1+")


@struct
class DescribeConfigsResourceResult:
    """Part of DescribeConfigsResponse."""

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
    """Part of DescribeConfigsResponse."""

    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[DescribeConfigsResourceResult] = field()


@message(api_key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """Response to DescribeConfigs (key 32)."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = field()
