from __future__ import annotations

from kbroker.wire.schema import Bool, Bytes, Int16, Request, Str, field, message


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    request_data: Bytes = b""
    request_principal: Bytes | None = field(nullable="0+")
    client_host_address: Bytes = b""


@message(api_key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: Bytes | None = field(nullable="0+", default=None)
    error_code: Int16 = 0


@message(versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal as Kafka's default builder serializes it."""

    type: Str = ""
    name: Str = ""
    token_authenticated: Bool = False
