from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"]):
    broker_id: Int32 = 0


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
