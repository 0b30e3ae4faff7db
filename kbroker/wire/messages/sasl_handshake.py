from __future__ import annotations

from kbroker.wire.schema import Int16, Request, Str, field, message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: Str = ""


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: Int16 = 0
    mechanisms: list[Str] = field()
