from __future__ import annotations

from kbroker.wire.schema import Bytes, Int8, Int16, Int32, Request, Str, field, message, struct


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


@struct
class ScramCredentialDeletion:
    name: Str = ""
    mechanism: Int8 = 0


@struct
class ScramCredentialUpsertion:
    name: Str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


@struct
class AlterUserScramCredentialsResult:
    user: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = field()
