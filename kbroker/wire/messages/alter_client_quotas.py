from __future__ import annotations

from kbroker.wire.schema import Bool, Float64, Int16, Int32, Request, Str, field, message, struct


@struct
class EntityData:
    entity_type: Str = ""
    entity_name: Str | None = field(nullable="0+")


@struct
class OpData:
    key: Str = ""
    value: Float64 = 0.0
    remove: Bool = False


@struct
class EntryData:
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    entries: list[EntryData] = field()
    validate_only: Bool = False


@struct
class ResponseEntityData:
    entity_type: Str = ""
    entity_name: Str | None = field(nullable="0+")


@struct
class ResponseEntryData:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    entity: list[ResponseEntityData] = field()


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData] = field()
