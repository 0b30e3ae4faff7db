"""OTLP metrics are decoded as protobuf says, and nothing malformed or too large gets through."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.observe.telemetry.otlp import MOST_LABELS, MOST_POINTS, MalformedMetrics, Point, decode_metrics


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def number(at: int, value: int) -> bytes:
    return varint(at << 3) + varint(value)


def fixed(at: int, body: bytes) -> bytes:
    return varint(at << 3 | 1) + body


def label(key: str, value: str | bool | int | float) -> bytes:
    if isinstance(value, str):
        any_value = field(1, value.encode())
    elif isinstance(value, bool):
        any_value = number(2, value)
    elif isinstance(value, int):
        any_value = number(3, value)
    else:
        any_value = fixed(4, struct.pack("<d", value))
    return field(1, key.encode()) + field(2, any_value)


def point(made: Point) -> bytes:
    """The metric of one point."""
    body = fixed(3, struct.pack("<Q", made.time_ns))
    attributes = 9 if made.kind == "histogram" else 7
    body += b"".join(field(attributes, label(*item)) for item in made.labels.items())
    if made.kind == "histogram":
        body += fixed(4, struct.pack("<Q", made.measured or 0)) + fixed(5, struct.pack("<d", made.value))
        data, kind = field(1, body), 9
    else:
        is_int = isinstance(made.value, int)
        body += fixed(6, struct.pack("<q", made.value)) if is_int else fixed(4, struct.pack("<d", made.value))
        data, kind = field(1, body), 7 if made.kind == "sum" else 5
    return field(1, made.name.encode()) + field(kind, data + (number(2, 1) if made.is_delta else b""))


def payload(*metrics: bytes, resource: bytes = b"") -> bytes:
    scope = b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, resource) + field(2, scope))


LABELS = st.dictionaries(
    st.text(max_size=8),
    st.text(max_size=8) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    max_size=4,
)
POINTS = st.builds(
    lambda name, kind, value, labels, time_ns, is_delta, measured: Point(
        name,
        kind,
        float(value) if kind == "histogram" else value,
        labels,
        time_ns,
        is_delta and kind != "gauge",
        measured if kind == "histogram" else None,
    ),
    st.text(max_size=20),
    st.sampled_from(["gauge", "sum", "histogram"]),
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    LABELS,
    st.integers(0, 2**64 - 1),
    st.booleans(),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(POINTS, max_size=5), LABELS)
def test_what_is_encoded_comes_out(points: list[Point], resource: dict[str, str | bool | int | float]) -> None:
    attributes = b"".join(field(1, label(*item)) for item in resource.items())
    decoded = decode_metrics(payload(*map(point, points), resource=attributes))
    assert (decoded.points, decoded.resource, decoded.skipped) == (points, resource, 0)


@given(st.binary(max_size=200), st.lists(POINTS, min_size=1, max_size=2), st.data())
def test_garbage_is_malformed_or_harmless(garbage: bytes, points: list[Point], data: st.DataObject) -> None:
    good = payload(*map(point, points))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (garbage, good[:cut] + garbage, good[:cut] + garbage[:1] + good[cut + 1 :]):
        try:
            decoded = decode_metrics(damaged)
        except MalformedMetrics:
            continue
        assert len(decoded.points) <= len(damaged)


def test_other_kinds_are_skipped_and_counted() -> None:
    decoded = decode_metrics(payload(field(1, b"e") + field(10, b""), point(Point("a", "gauge", 1, {}, 0))))
    assert decoded.skipped == 1 and [found.name for found in decoded.points] == ["a"]


def test_points_and_labels_are_bounded() -> None:
    many = field(1, b"m") + field(5, field(1, b"") * (MOST_POINTS + 1))
    with pytest.raises(MalformedMetrics, match="points"):
        decode_metrics(payload(many))
    wide = Point("a", "gauge", 1, {f"l{at}": "x" for at in range(MOST_LABELS + 1)}, 0)
    with pytest.raises(MalformedMetrics, match="labels"):
        decode_metrics(payload(point(wide)))
