from __future__ import annotations

from kbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class CreatableRenewers:
    principal_type: Str = ""
    principal_name: Str = ""


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"]):
    owner_principal_type: Str | None = field("3+", nullable="3+")
    owner_principal_name: Str | None = field("3+", nullable="3+")
    renewers: list[CreatableRenewers] = field()
    max_lifetime_ms: Int64 = 0


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = 0
    principal_type: Str = ""
    principal_name: Str = ""
    token_requester_principal_type: Str = field("3+")
    token_requester_principal_name: Str = field("3+")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: Str = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"]):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


@struct
class DescribeDelegationTokenOwner:
    principal_type: Str = ""
    principal_name: Str = ""


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"]):
    owners: list[DescribeDelegationTokenOwner] | None = field(nullable="0+")


@struct
class DescribedDelegationTokenRenewer:
    principal_type: Str = ""
    principal_name: Str = ""


@struct
class DescribedDelegationToken:
    principal_type: Str = ""
    principal_name: Str = ""
    token_requester_principal_type: Str = field("3+")
    token_requester_principal_name: Str = field("3+")
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: Str = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = field()


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = field()
    throttle_time_ms: Int32 = 0
