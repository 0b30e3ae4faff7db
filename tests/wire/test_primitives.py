"""Varints, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.wire.errors import WireError
from kbroker.wire.primitives import decode_uvarint, encode_uvarint


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned(value: int) -> None:
    encoded = encode_uvarint(value)
    assert decode_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


def test_known_values() -> None:
    assert encode_uvarint(0) == b"\0"
    assert encode_uvarint(127) == b"\x7f"
    assert encode_uvarint(128) == b"\x80\x01"
    assert encode_uvarint((1 << 32) - 1) == b"\xff\xff\xff\xff\x0f"
    with pytest.raises(ValueError, match="-1"):
        encode_uvarint(-1)


def test_damage() -> None:
    for size in range(5):
        with pytest.raises(WireError):
            decode_uvarint(b"\xff" * size, 0)
    with pytest.raises(WireError):
        decode_uvarint(b"\xff" * 20, 0)
    with pytest.raises(WireError):
        decode_uvarint(b"\x80" * 9 + b"\x02", 0)
