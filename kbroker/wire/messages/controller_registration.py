from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, UInt16, UuidField, field, message, struct


@struct
class Listener:
    name: Str = ""
    host: Str = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class Feature:
    name: Str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest(Request["ControllerRegistrationResponse"]):
    controller_id: Int32 = 0
    incarnation_id: UuidField = ZERO_UUID
    zk_migration_ready: Bool = False
    listeners: list[Listener] = field()
    features: list[Feature] = field()


@message(api_key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
