from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, UInt16, UuidField, field, message, struct


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


@message(api_key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: Int32 = 0
    cluster_id: Str = ""
    incarnation_id: UuidField = ZERO_UUID
    listeners: list[Listener] = field()
    features: list[Feature] = field()
    rack: Str | None = field(nullable="0+")
    is_migrating_zk_broker: Bool = field("1+")
    log_dirs: list[UuidField] = field("2+", ignorable=True)
    previous_broker_epoch: Int64 = field("3+", ignorable=True, default=-1)


@message(api_key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
