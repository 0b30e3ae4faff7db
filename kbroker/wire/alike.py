"""Frames that are the same bytes but for a few fields of fixed width.

Clients send the same request again and again, all but a number or two, and are told the same again and again. To
recognise the one by its bytes, and to put numbers into the other, costs a tenth of decoding and encoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from kbroker.wire.compiler import encode
from kbroker.wire.framing import response_parts

STAND_IN: Final = -0x7E7D_7C7B_7A79_7877
"""An int64 to look for in a frame: no name has its bytes, and no client means it. Those that follow it will do, too."""

_INT64 = Struct(">q")
_CORRELATION_ID_END: Final = 8


class AlikeRequests:
    """Request frames of one shape: the same but for the correlation id and the int64 fields at ``places``."""

    __slots__ = ("_same", "_size", "_unpack")

    def __init__(self, frame: memoryview, places: Sequence[int] = ()) -> None:
        form, end = ">4si", _CORRELATION_ID_END
        for place in places:
            form += f"{place - end}sq"
            end = place + _INT64.size
        layout = Struct(f"{form}{len(frame) - end}s")
        self._size, self._unpack = layout.size, layout.unpack
        self._same = self._unpack(frame)[::2]

    def match(self, frame: memoryview) -> tuple[int, ...] | None:
        """The correlation id and the fields, in order; ``None`` for a frame of another shape."""
        if len(frame) != self._size:
            return None
        values = self._unpack(frame)
        return values[1::2] if values[::2] == self._same else None


def requests_like(
    frame: memoryview, request: Any, varied: Any, api_version: int, stand_ins: Sequence[int]
) -> AlikeRequests | None:
    """Those that differ from ``frame``, which is ``request``, where ``varied`` has ``stand_ins``.

    ``None`` if the frame says more than the request does, as with tagged fields that nobody knows.
    """
    body = encode(request, api_version)
    start = len(frame) - len(body)
    if frame[start:] != body:
        return None
    body = encode(varied, api_version)
    return AlikeRequests(frame, [start + body.index(_INT64.pack(stand_in)) for stand_in in stand_ins])


def responses_like(
    api_key: int, api_version: int, response: Any, form: str = "", stand_ins: Sequence[int] = ()
) -> Callable[..., bytes]:
    """``reply(correlation_id, *values)``: the frame of ``response`` with values where it has ``stand_ins``.

    Those are adjacent, and of the widths that ``form`` gives in the letters of ``struct``.
    """
    parts = response_parts(api_key, api_version, 0, response)
    frame = b"".join(parts)  # type: ignore[arg-type]
    varied = Struct(f">{form}").pack(*stand_ins)
    at = frame.index(varied, _CORRELATION_ID_END) if varied else len(frame)
    before, after = frame[_CORRELATION_ID_END:at], frame[at + len(varied) :]
    layout = Struct(f">ii{len(before)}s{form}{len(after)}s")
    size, pack = layout.size - 4, layout.pack

    def reply(correlation_id: int, *values: int) -> bytes:
        return pack(size, correlation_id, before, *values, after)

    return reply
