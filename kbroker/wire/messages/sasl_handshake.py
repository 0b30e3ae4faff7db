"""SaslHandshake (key 17): versions 0-1, no flexible version."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Request, Str, field, message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """Request of SaslHandshake (key 17)."""

    mechanism: Str = ""


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """Response to SaslHandshake (key 17)."""

    error_code: Int16 = 0
    mechanisms: list[Str] = field()
