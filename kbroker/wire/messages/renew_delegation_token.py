from __future__ import annotations

from kbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, message


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"]):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
