"""DescribeClientQuotas (key 48): versions 0-1, flexible from 1."""

from __future__ import annotations

from kbroker.wire.schema import Bool, Float64, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class ComponentData:
    """Part of DescribeClientQuotasRequest."""

    entity_type: Str = ""
    match_type: Int8 = 0
    match: Str | None = field(nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Request of DescribeClientQuotas (key 48)."""

    components: list[ComponentData] = field()
    strict: Bool = False


@struct
class EntityData:
    """Part of DescribeClientQuotasResponse."""

    entity_type: Str = ""
    entity_name: Str | None = field(nullable="0+")


@struct
class ValueData:
    """Part of DescribeClientQuotasResponse."""

    key: Str = ""
    value: Float64 = 0.0


@struct
class EntryData:
    """Part of DescribeClientQuotasResponse."""

    entity: list[EntityData] = field()
    values: list[ValueData] = field()


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """Response to DescribeClientQuotas (key 48)."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    entries: list[EntryData] | None = field(nullable="0+")
