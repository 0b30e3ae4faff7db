from __future__ import annotations

from kbroker.wire.schema import Bytes, Int16, Int64, Request, Str, field, message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: Str = ""


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: Int16 = 0
    mechanisms: list[Str] = field()


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: Bytes = b""


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = field("1+", ignorable=True)
