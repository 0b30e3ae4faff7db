from __future__ import annotations

from kbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, message


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
