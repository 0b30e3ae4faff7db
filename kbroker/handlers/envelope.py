"""Envelope (key 58): a broker passes a client's request on to the active controller, with who sent it (KIP-590).

Served: 0. The node that sends it needs CLUSTER_ACTION; the request inside is the client's, and judged as such.
"""

from __future__ import annotations

import logging
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import CloseConnection, ForwardedContext, RequestContext
from kbroker.handlers.common.error_answers import error_answer, error_in_place
from kbroker.handlers.common.forwarding import error_codes, says_only_not_controller
from kbroker.handlers.registration import CONTROLLER, Registration, handler, registrations
from kbroker.handlers.services.requester import read_address, read_principal
from kbroker.security.authorizer.types import AuthorizerNotReady
from kbroker.wire.compiler import decode, encode_parts
from kbroker.wire.errors import EncodeError, WireError
from kbroker.wire.headers import RequestHeader, decode_request_header, encode_response_header
from kbroker.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

logger = logging.getLogger(__name__)


@handler(EnvelopeRequest)
async def handle(request: EnvelopeRequest, ctx: RequestContext) -> EnvelopeResponse:
    """Serve the request inside; only one that brokers forward may be. Its principal counts only after the sender's."""
    refused: EnvelopeResponse | None = cluster_refusal(ctx, request)
    if refused is not None:
        return refused
    try:
        principal = read_principal(request.request_principal)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    if not ctx.services.metadata.is_leader:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = memoryview(bytes(request.request_data))
    pace = ctx.services.long_steps if len(data) > ctx.budgets.long_request_bytes else None
    if pace is not None:
        await pace.take()
    try:
        host = read_address(request.client_host_address)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        header, offset = decode_request_header(data)
        entry = registrations(CONTROLLER).get(header.api_key)
        if entry is None or not entry.is_for_controller:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if header.api_version not in entry.versions:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = decode(entry.request_class, header.api_version, data, offset)
    except WireError:
        # What is inside may be of a later release; the broker's client is to ask for the versions again.
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if pace is not None:
        await pace.take()
    response = await _served(entry, inner, ForwardedContext(header, ctx.connection, ctx.services, principal, host))
    if response is None:
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    if not ctx.services.metadata.is_leader or says_only_not_controller(error_codes(response)):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if pace is not None:
        await pace.take()
    return EnvelopeResponse(response_data=_framed(response, header))


async def _served(entry: Registration, request: Any, ctx: RequestContext) -> Any:
    """The response; if the handler fails, an error in the place that the API has for it, or None if it has none."""
    try:
        return await entry.handle(request, ctx)
    except CloseConnection:
        raise
    except AuthorizerNotReady as error:
        return error_answer(entry.api_key, ctx.api_version, request, error.code)
    except Exception:
        logger.exception("API key %d v%d in an Envelope failed", entry.api_key, ctx.api_version)
        return error_answer(entry.api_key, ctx.api_version, request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _framed(response: object, header: RequestHeader) -> bytes:
    """Returns response header and body; of a response that cannot be encoded, an error response in its place."""
    key, version = header.api_key, header.api_version
    try:
        parts = encode_parts(response, version)
    except EncodeError:
        logger.exception("the answer to API key %d v%d in an Envelope cannot be encoded", key, version)
        parts = encode_parts(error_in_place(key, version, response, ErrorCode.UNKNOWN_SERVER_ERROR), version)
    start = encode_response_header(key, version, header.correlation_id)
    return start + b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
