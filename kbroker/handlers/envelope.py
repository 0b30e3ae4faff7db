"""Envelope (key 58): a broker passes a client's request on to the active controller, with who sent it (KIP-590).

Served: 0. This is how Apache Kafka's brokers forward; kbroker's own send the request as it is.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.registration import CONTROLLER, handler, registrations
from kbroker.wire.compiler import decode, encode_parts
from kbroker.wire.errors import WireError
from kbroker.wire.headers import decode_request_header, encode_response_header
from kbroker.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


@handler(EnvelopeRequest)
async def handle(request: EnvelopeRequest, ctx: RequestContext) -> EnvelopeResponse:
    """Serve the request inside; only one that brokers forward may be."""
    if not ctx.services.metadata.is_leader:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = memoryview(bytes(request.request_data))
    try:
        header, offset = decode_request_header(data)
        entry = registrations(CONTROLLER).get(header.api_key)
        if entry is None or not entry.is_for_controller:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if header.api_version not in entry.versions:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = decode(entry.request_class, header.api_version, data, offset)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = await entry.handle(inner, RequestContext(header, ctx.connection, ctx.services))
    if not ctx.services.metadata.is_leader:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    parts = [encode_response_header(header.api_key, header.api_version, header.correlation_id)]
    parts += [bytes(part) for part in encode_parts(response, header.api_version)]  # type: ignore[arg-type]
    return EnvelopeResponse(response_data=b"".join(parts))
