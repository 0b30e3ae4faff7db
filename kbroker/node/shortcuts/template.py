"""Templates: a request's bytes with gaps to be matched, a response's bytes with gaps to be filled.

Clients send the same request again and again, all but a number or two, and are told the same again and again. Matching
the request's bytes and filling numbers into the response's costs a tenth of decoding and encoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from kbroker.wire.compiler import encode
from kbroker.wire.framing import response_parts

PLACEHOLDER: Final = -0x7E7D_7C7B_7A79_7877
"""An int64 that marks a gap: no name has its bytes, and no client sends it. Those that follow it serve as well."""

CORRELATION_ID_END: Final = 8
"""Where the correlation id ends: in a request's frame, and in a response's with its size."""

_INT64 = Struct(">q")


class RequestTemplate:
    """The bytes of one request frame, with gaps for the correlation id and for int64 fields at ``places``."""

    __slots__ = ("_same", "_size", "_unpack")

    def __init__(self, frame: memoryview, places: Sequence[int] = ()) -> None:
        form, end = ">4si", CORRELATION_ID_END
        for place in places:
            form += f"{place - end}sq"
            end = place + _INT64.size
        layout = Struct(f"{form}{len(frame) - end}s")
        self._size, self._unpack = layout.size, layout.unpack
        self._same = self._unpack(frame)[::2]

    def match(self, frame: memoryview) -> tuple[int, ...] | None:
        """The correlation id and the fields, in order; ``None`` if any other byte differs."""
        if len(frame) != self._size:
            return None
        values = self._unpack(frame)
        return values[1::2] if values[::2] == self._same else None


def request_template(
    frame: memoryview, request: object, varied: object, api_version: int, placeholders: Sequence[int]
) -> RequestTemplate | None:
    """The template of ``frame``, which encodes ``request``, with gaps where ``varied`` has ``placeholders``.

    ``None`` if the frame holds more than the request, as with unknown tagged fields.
    """
    body = encode(request, api_version)
    start = len(frame) - len(body)
    if frame[start:] != body:
        return None
    body = encode(varied, api_version)
    return RequestTemplate(frame, [start + body.index(_INT64.pack(placeholder)) for placeholder in placeholders])


def response_template(
    api_key: int, api_version: int, response: object, form: str = "", placeholders: Sequence[int] = ()
) -> Callable[..., bytes]:
    """``reply(correlation_id, *values)``: the frame of ``response`` with values where it has ``placeholders``.

    Those are adjacent, and of the widths that ``form`` gives in the letters of ``struct``.
    """
    parts = response_parts(api_key, api_version, 0, response)
    frame = b"".join(parts)  # type: ignore[arg-type]
    gap = Struct(f">{form}").pack(*placeholders)
    at = frame.index(gap, CORRELATION_ID_END) if gap else len(frame)
    before, after = frame[CORRELATION_ID_END:at], frame[at + len(gap) :]
    layout = Struct(f">ii{len(before)}s{form}{len(after)}s")
    size, pack = layout.size - 4, layout.pack

    def reply(correlation_id: int, *values: int) -> bytes:
        return pack(size, correlation_id, before, *values, after)

    return reply
