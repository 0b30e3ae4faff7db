"""The parts of a request and of its answer that are kept: not all of the long ones, and no secrets."""

from __future__ import annotations

from typing import Final

from kbroker.observe.explorer.exchange import NO_API, Exchange, Frame, cut_frame, unshown_frame, whole_frame
from kbroker.observe.explorer.redaction import LARGEST, PREFIX, may_have_secrets, redacted_request, redacted_response
from kbroker.wire.registry import API_KEYS

CUT_OFF: Final = "the connection was closed"


def client_id_of(frame: memoryview | bytes) -> bytes:
    """The client id, as the header of a request has it; it need not be UTF-8."""
    return bytes(frame[10 : 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))])


def request_frame(api_key: int, frame: memoryview | bytes) -> Frame:
    """The part of a request that is kept until it is complete: a copy, whole where it may have secrets."""
    if api_key not in API_KEYS:
        return unshown_frame(len(frame))
    if may_have_secrets(api_key) and len(frame) <= LARGEST:
        return whole_frame(bytes(frame))
    return cut_frame(frame)


def redact(exchange: Exchange) -> None:
    """Overwrite what is secret in both frames; what cannot be looked through is taken away."""
    if not may_have_secrets(exchange.api_key):
        return
    request, response = exchange.request, exchange.response
    if exchange.api_key == NO_API:  # its answer has bytes of it, the correlation id, and an error may name its key
        exchange.end = exchange.end and CUT_OFF
        exchange.response = None if response is None else Frame(response.size, ())
        exchange.is_redacted = True
        return
    original = request.filled() if request.is_whole else b""
    redacted = redacted_request(original) if original else b""
    exchange.request = cut_frame(redacted) if original else Frame(request.size, ((0, request.pieces[0][1][:PREFIX]),))
    changed = redacted != original or not original
    if response is not None:
        told = response.filled() if response.is_whole else b""
        if original and told:
            hidden = redacted_response(told, original)
            changed = changed or hidden != told
            exchange.response = cut_frame(hidden)
        else:
            changed = True
            exchange.response = Frame(response.size, ((0, response.pieces[0][1][:4]),))
    exchange.is_redacted = changed
