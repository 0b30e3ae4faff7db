"""The id of a schema at the beginning of a key or value."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.schemas.wire_format import UndecodableRecord, split_frame, split_header, split_message_type


@given(st.integers(0, 2**32 - 1), st.binary())
def test_an_id_and_the_rest(schema_id: int, rest: bytes) -> None:
    data = b"\0" + schema_id.to_bytes(4) + rest
    assert split_frame(data) == (schema_id, rest)
    assert split_header(data) == (schema_id, rest)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\1", b"text that is longer", b"\1\0\0\0\1", b"{}"])
def test_other_bytes_have_no_schema(data: bytes) -> None:
    assert split_frame(data) is None


def test_a_guid_in_a_header() -> None:
    guid = uuid.uuid4()
    assert split_header(b"\1" + guid.bytes + b"\0") == (guid, b"\0")
    assert split_header(b"\1" + guid.bytes[:-1]) is None


def zigzag(value: int) -> bytes:
    value = value << 1 ^ value >> 31
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=64), st.binary())
def test_the_place_of_a_message_type(path: list[int], rest: bytes) -> None:
    data = zigzag(len(path)) + b"".join(map(zigzag, path)) + rest
    assert split_message_type(data) == (tuple(path), rest)
    assert split_message_type(b"\0" + rest) == ((0,), rest)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_place_or_are_refused(data: bytes) -> None:
    try:
        path, rest = split_message_type(data)
    except UndecodableRecord:
        return
    assert path and data.endswith(rest)
