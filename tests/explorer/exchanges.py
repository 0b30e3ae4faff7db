"""Exchanges made of messages, as a node would have seen them."""

from __future__ import annotations

import itertools
from typing import Any

from kbroker.observe.explorer.decoded import Decoded
from kbroker.observe.explorer.exchange import ConnectionInfo, Exchange, whole_frame
from kbroker.wire.compiler import encode
from kbroker.wire.headers import encode_request_header, encode_response_header
from kbroker.wire.registry import API_KEYS

CONNECTION = ConnectionInfo(7, "127.0.0.1:40000", "PLAINTEXT", False, "User:ANONYMOUS", "librdkafka 2.0", 1)
_numbers = itertools.count(1)


def request_frame(request: Any, version: int, client: str | None = "me", correlation_id: int = 1) -> bytes:
    return encode_request_header(request.api_key, version, correlation_id, client) + encode(request, version)


def response_frame(response: Any, version: int, correlation_id: int = 1) -> bytes:
    key = response.api_key
    return encode_response_header(key, version, correlation_id) + encode(response, version)


def exchange(
    request: Any, response: Any = None, version: int | None = None, *, client: str | None = "me", connection: int = 7
) -> Exchange:
    if version is None:
        version = API_KEYS[request.api_key].stable_versions.highest
    number = next(_numbers)
    answer = None if response is None else whole_frame(response_frame(response, version, number))
    frame = whole_frame(request_frame(request, version, client, number))
    return Exchange(1, number, connection, 1000.0 + number, frame, answer, 1.5 if answer else -1.0)


def decoded(request: Any, response: Any = None, version: int | None = None, **more: Any) -> Decoded:
    connection = CONNECTION._replace(number=more.get("connection", 7))
    return Decoded(exchange(request, response, version, **more), connection)
