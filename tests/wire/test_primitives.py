"""Varints, at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.wire.errors import WireError
from kbroker.wire.primitives import (
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
)


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned(value: int) -> None:
    encoded = encode_uvarint(value)
    assert decode_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_signed(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))
    assert encode_varlong(value) == encoded


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_signed_long(value: int) -> None:
    encoded = encode_varlong(value)
    assert len(encoded) <= 10
    assert decode_varlong(encoded, 0) == (value, len(encoded))


def test_known_values() -> None:
    assert encode_uvarint(0) == b"\0"
    assert encode_uvarint(127) == b"\x7f"
    assert encode_uvarint(128) == b"\x80\x01"
    assert encode_uvarint((1 << 32) - 1) == b"\xff\xff\xff\xff\x0f"
    assert encode_varint(-1) == b"\1"
    assert encode_varint(1) == b"\2"
    with pytest.raises(ValueError, match="-1"):
        encode_uvarint(-1)


@pytest.mark.parametrize("decoder", [decode_uvarint, decode_varint, decode_varlong])
def test_damage(decoder) -> None:  # type: ignore[no-untyped-def]
    for size in range(5):
        with pytest.raises(WireError):
            decoder(b"\xff" * size, 0)
    with pytest.raises(WireError):
        decoder(b"\xff" * 20, 0)
    with pytest.raises(WireError):
        decoder(b"\x80" * 9 + b"\x02", 0)
