from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import (
    FIRST_OWN_TAG,
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Str,
    UInt16,
    UuidField,
    field,
    message,
    struct,
)


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


@struct
class LogEndData:
    """The end of the broker's log of a partition of which no replica is known to have everything."""

    topic_id: UuidField = ZERO_UUID
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    epoch_start_offset: Int64 = 0
    end_offset: Int64 = 0
    missing: Int64 = 0


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: list[UuidField] = field("1+", tag=0)
    cordoned_log_dirs: list[UuidField] | None = field("2+", nullable="2+", tag=1, default=None)
    is_last: Bool = field(tag=FIRST_OWN_TAG, default=False)
    log_ends: list[LogEndData] | None = field(tag=FIRST_OWN_TAG + 1, nullable="0+", default=None)


@message(api_key=63, versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    broker_id: Int32 = 0


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


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


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerRequest(Request["UnregisterControllerResponse"]):
    controller_id: Int32 = 0


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
