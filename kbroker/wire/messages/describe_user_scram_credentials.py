from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class UserName:
    name: Str = ""


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    users: list[UserName] | None = field(nullable="0+")


@struct
class CredentialInfo:
    mechanism: Int8 = 0
    iterations: Int32 = 0


@struct
class DescribeUserScramCredentialsResult:
    user: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    credential_infos: list[CredentialInfo] = field()


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field()
