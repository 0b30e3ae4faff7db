from __future__ import annotations

from kbroker.wire.schema import Bool, Float64, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class ComponentData:
    entity_type: Str = ""
    match_type: Int8 = 0
    match: Str | None = field(nullable="0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    components: list[ComponentData] = field()
    strict: Bool = False


@struct
class EntityData:
    entity_type: Str = ""
    entity_name: Str | None = field(nullable="0+")


@struct
class ValueData:
    key: Str = ""
    value: Float64 = 0.0


@struct
class DescribedEntryData:
    entity: list[EntityData] = field()
    values: list[ValueData] = field()


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    entries: list[DescribedEntryData] | None = field(nullable="0+")


@struct
class OpData:
    key: Str = ""
    value: Float64 = 0.0
    remove: Bool = False


@struct
class AlteredEntryData:
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    entries: list[AlteredEntryData] = field()
    validate_only: Bool = False


@struct
class ResponseEntryData:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    entity: list[EntityData] = field()


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData] = field()
