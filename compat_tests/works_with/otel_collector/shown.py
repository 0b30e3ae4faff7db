"""The text of the collector's debug exporter, read back: what each node has sent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Attributes = tuple[tuple[str, str | int], ...]

_PAIR = re.compile(r"\s+-> ([^:]+): (.*)")
_TYPED = re.compile(r"(Str|Int|Bool|Double)\((.*)\)")
_BUCKET = re.compile(r"Buckets #\d+, Count: (\d+)")
_HEADINGS = ("Resource attributes:", "Descriptor:", "Data point attributes:")


@dataclass(frozen=True)
class Kind:
    """A metric without its values; ``is_monotonic`` and ``temporality`` are empty where its type has none."""

    unit: str
    type: str
    is_monotonic: str = ""
    temporality: str = ""


@dataclass
class Point:
    """A value, or the observations of a histogram; times are as the collector writes them."""

    attributes: Attributes = ()
    since: str = ""
    time: str = ""
    value: float = 0
    count: int = 0
    buckets: list[int] = field(default_factory=list)


@dataclass
class Look:
    """All that a node has sent at one time."""

    resource: dict[str, str | int]
    kinds: dict[str, Kind] = field(default_factory=dict)
    points: dict[str, dict[Attributes, Point]] = field(default_factory=dict)

    def value(self, name: str, **attributes: str | int) -> float | None:
        """The value of a series, None if it was not sent."""
        point = self.points.get(name, {}).get(tuple(sorted(attributes.items())))
        return None if point is None else point.value

    def total(self, name: str) -> float:
        """The sum of all values of a name."""
        return sum(point.value for point in self.points.get(name, {}).values())


class Shown:
    """Reads the text as it grows. A look is known to be complete when a series of it comes again."""

    def __init__(self) -> None:
        self.last: dict[str, Look] = {}
        """The last complete look, by ``service.instance.id``."""
        self.count: dict[str, int] = {}
        """The number of complete looks."""
        self._growing: dict[str, Look] = {}
        self._read = 0
        self._heading = ""
        self._pairs: dict[str, str] = {}
        """Those that follow the heading."""
        self._node = ""
        self._name = ""
        self._kind = Kind("", "")
        self._point: Point | None = None

    def read(self, text: str) -> None:
        """Take what is new since the last call, whole lines alone."""
        end = text.rfind("\n") + 1
        for line in text[self._read : end].splitlines():
            self._take(line.partition("\t{")[0])
        self._read = end

    def _take(self, line: str) -> None:
        if pair := _PAIR.fullmatch(line):
            self._pairs[pair[1]] = pair[2]
            return
        if self._heading:
            self._end_of_pairs()
        name, _, value = line.partition(":")
        if line in _HEADINGS:
            self._heading, self._pairs = line, {}
        if line in _HEADINGS[:2] or "DataPoints #" in line or line.endswith("ResourceMetrics #0"):
            self._keep_point()
        if "DataPoints #" in line:
            self._point = Point()
        elif self._point is not None:
            _fill(self._point, line, name, value.strip())

    def _end_of_pairs(self) -> None:
        """Take the pairs that have come for what the heading says."""
        pairs, heading, self._heading = self._pairs, self._heading, ""
        if heading == "Resource attributes:":
            resource = {name: _typed(value) for name, value in pairs.items()}
            self._node = str(resource["service.instance.id"])
            self._growing.setdefault(self._node, Look(resource)).resource = resource
        elif heading == "Descriptor:":
            self._name = pairs["Name"]
            self._kind = Kind(
                pairs["Unit"], pairs["DataType"], pairs.get("IsMonotonic", ""), pairs.get("AggregationTemporality", "")
            )
        elif self._point is not None:
            self._point.attributes = tuple(sorted((name, _typed(value)) for name, value in pairs.items()))

    def _keep_point(self) -> None:
        point, self._point = self._point, None
        if point is None:
            return
        look = self._growing[self._node]
        if point.attributes in look.points.get(self._name, {}):
            self.last[self._node] = look
            self.count[self._node] = self.count.get(self._node, 0) + 1
            look = self._growing[self._node] = Look(look.resource)
        look.kinds[self._name] = self._kind
        look.points.setdefault(self._name, {})[point.attributes] = point


def _fill(point: Point, line: str, name: str, value: str) -> None:
    if name == "StartTimestamp":
        point.since = value
    elif name == "Timestamp":
        point.time = value
    elif name == "Value":
        point.value = float(value)
    elif name == "Count":
        point.count = int(value)
    elif bucket := _BUCKET.fullmatch(line):
        point.buckets.append(int(bucket[1]))


def _typed(text: str) -> str | int:
    found = _TYPED.fullmatch(text)
    assert found is not None, text
    return int(found[2]) if found[1] == "Int" else found[2]
