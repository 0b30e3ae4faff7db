"""A client's request in an Envelope, with which a broker passes it on to the active controller (KIP-590).

The controller asks the authorizer about the client, not about the broker: it believes the principal and the address in
an Envelope of a node that may send one.
"""

from __future__ import annotations

from typing import Any

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.services.requester import Requester, address_bytes, principal_bytes
from kbroker.wire.compiler import decode, encode_parts
from kbroker.wire.errors import WireError
from kbroker.wire.headers import RequestHeader, decode_response_header, encode_request_header
from kbroker.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kbroker.wire.registry import API_KEYS


def sealed(request: object, requester: Requester, header: RequestHeader | None = None) -> EnvelopeRequest:
    """An Envelope around a request of a client, with that client's header or another one."""
    key, version, correlation_id, client_id = header or requester.header
    start = encode_request_header(key, version, correlation_id, client_id)
    return EnvelopeRequest(
        request_data=b"".join((start, *encode_parts(request, version))),  # type: ignore[arg-type]
        request_principal=principal_bytes(requester.principal),
        client_host_address=address_bytes(requester.host),
    )


def opened(answer: EnvelopeResponse, header: RequestHeader) -> Any:
    """The response to the request inside, which had ``header``.

    ``ApiError`` if the controller has not taken the Envelope, or its response cannot be read.
    """
    if answer.error_code:
        raise ApiError(ErrorCode.of(answer.error_code))
    data = answer.response_data or b""
    try:
        _, offset = decode_response_header(header.api_key, header.api_version, data)
        response, _ = decode(API_KEYS[header.api_key].response, header.api_version, data, offset)
    except WireError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    return response
