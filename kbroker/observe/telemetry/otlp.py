"""Decoder of the OTLP metrics that clients push (KIP-714): the protobuf message ``MetricsData``, bounded.

The field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto. Gauges, sums and histograms are read;
exponential histograms and summaries, which no known client pushes, are skipped, and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

MOST_POINTS: Final = 20_000
"""Points in one payload. A Java client with every metric on has some hundreds."""
MOST_LABELS: Final = 64
"""Attributes of one point, or of the resource."""

Label: TypeAlias = str | bool | int | float
_Field: TypeAlias = tuple[int, int, int | bytes]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedMetrics(ValueError):
    """The bytes are not OTLP metrics, or are more than a node takes."""


class Point(NamedTuple):
    """A value of a metric. Of a histogram ``value`` is the sum of what was measured."""

    name: str
    kind: str
    """``gauge``, ``sum`` or ``histogram``."""
    value: float
    labels: dict[str, Label]
    time_ns: int
    """Nanoseconds since 1970, by the client's clock."""
    is_delta: bool = False
    """Counted since the client's last push; otherwise since it started."""
    measured: int | None = None
    """Of a histogram: how many values were measured."""


class Metrics(NamedTuple):
    """The metrics of a decoded payload."""

    resource: dict[str, Label]
    """The attributes that the client gives itself, such as ``client_rack``."""
    points: list[Point]
    skipped: int
    """Metrics of other kinds."""


def decode_metrics(data: bytes) -> Metrics:
    """Decode ``MetricsData``; :class:`MalformedMetrics` for what it is not, or for too much of it."""
    decoder = _Decoder()
    try:
        for number, wire_type, value in _fields(data):
            if number == 1 and wire_type == _BYTES:
                decoder.resource_metrics(_bytes(value))
    except UnicodeDecodeError as error:
        raise MalformedMetrics("a text is not UTF-8") from error
    return Metrics(decoder.resource, decoder.points, decoder.skipped)


class _Decoder:
    def __init__(self) -> None:
        self.resource: dict[str, Label] = {}
        self.points: list[Point] = []
        self.skipped = 0

    def resource_metrics(self, data: bytes) -> None:
        for number, wire_type, value in _fields(data):
            if wire_type != _BYTES:
                continue
            if number == 1:
                self.resource.update(_labels(_bytes(value), 1))
                _check_labels(self.resource)
            elif number in (2, 1000):  # 1000: the name that scopes had before OTLP 0.15
                for inner, inner_type, metric in _fields(_bytes(value)):
                    if inner == 2 and inner_type == _BYTES:
                        self.metric(_bytes(metric))

    def metric(self, data: bytes) -> None:
        name, kind, body = "", "", b""
        for number, wire_type, value in _fields(data):
            if wire_type != _BYTES:
                continue
            if number == 1:
                name = _bytes(value).decode()
            elif number in _KINDS:
                kind, body = _KINDS[number], _bytes(value)
        if kind not in _POINT_FIELDS:
            self.skipped += 1
            return
        is_delta, points = False, []
        for number, wire_type, value in _fields(body):
            if number == 1 and wire_type == _BYTES:
                points.append(_bytes(value))
            elif number == 2 and wire_type == _VARINT:
                is_delta = value == 1
        if len(self.points) + len(points) > MOST_POINTS:
            raise MalformedMetrics(f"there are more than {MOST_POINTS} points")
        self.points += (_point(name, kind, is_delta, point) for point in points)


_KINDS: Final = {5: "gauge", 7: "sum", 9: "histogram", 10: "exponential histogram", 11: "summary"}
_POINT_FIELDS: Final = {"gauge": 7, "sum": 7, "histogram": 9}
"""The number of the attributes in a point of each kind that is read."""


def _point(name: str, kind: str, is_delta: bool, data: bytes) -> Point:
    value: float = 0
    time_ns = 0
    count: int | None = None
    labels: dict[str, Label] = {}
    is_histogram = kind == "histogram"
    for number, wire_type, raw in _fields(data):
        if wire_type == _FIXED64:
            assert isinstance(raw, int)
            if number == 3:
                time_ns = raw
            elif number == 4:
                if is_histogram:
                    count = raw
                else:
                    value = _double(raw)
            elif number == 5 and is_histogram:
                value = _double(raw)
            elif number == 6 and not is_histogram:
                value = raw - (1 << 64) if raw >> 63 else raw
        elif wire_type == _BYTES and number == _POINT_FIELDS[kind]:
            key, label = _label(_bytes(raw))
            labels[key] = label
            _check_labels(labels)
    return Point(name, kind, value, labels, time_ns, is_delta, count)


def _labels(data: bytes, wanted: int) -> dict[str, Label]:
    found: dict[str, Label] = {}
    for number, wire_type, value in _fields(data):
        if number == wanted and wire_type == _BYTES:
            key, label = _label(_bytes(value))
            found[key] = label
            _check_labels(found)
    return found


def _check_labels(labels: dict[str, Label]) -> None:
    if len(labels) > MOST_LABELS:
        raise MalformedMetrics(f"there are more than {MOST_LABELS} labels")


def _label(data: bytes) -> tuple[str, Label]:
    """A ``KeyValue``. A list, a map or bytes as value is left out: the text is empty."""
    key, label = "", ""
    result: Label = label
    for number, wire_type, value in _fields(data):
        if wire_type != _BYTES:
            continue
        if number == 1:
            key = _bytes(value).decode()
        elif number == 2:
            result = _any_value(_bytes(value))
    return key, result


def _any_value(data: bytes) -> Label:
    result: Label = ""
    for number, wire_type, value in _fields(data):
        if number == 1 and wire_type == _BYTES:
            result = _bytes(value).decode()
        elif number == 2 and wire_type == _VARINT:
            result = bool(value)
        elif number == 3 and wire_type == _VARINT and isinstance(value, int):
            result = value - (1 << 64) if value >> 63 else value
        elif number == 4 and wire_type == _FIXED64 and isinstance(value, int):
            result = _double(value)
    return result


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


def _double(raw: int) -> float:
    number: float = struct.unpack("<d", raw.to_bytes(8, "little"))[0]
    return number


def _fields(data: bytes) -> Iterator[_Field]:
    """The fields of one message: number, wire type, value. Groups, which protobuf 3 does not have, are malformed."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise MalformedMetrics("a field has the number 0")
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            size, at = _varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise MalformedMetrics(f"there is no wire type {wire_type}")
        if size > end - at:
            raise MalformedMetrics("a field is longer than the rest")
        raw = data[at : at + size]
        at += size
        yield number, wire_type, raw if wire_type == _BYTES else int.from_bytes(raw, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70:
        if at >= len(data):
            raise MalformedMetrics("it ends within a number")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (1 << 64) - 1, at
        shift += 7
    raise MalformedMetrics("a number is longer than ten bytes")
