"""Series for Prometheus of what clients push of their own metrics (KIP-714); bounded in all that they choose."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kbroker.observe.metrics import exposition

MOST_CLIENTS: Final = 1_000
"""Clients that are shown at once; the one that has pushed least lately makes room."""
MOST_OF_A_CLIENT: Final = 2_000
"""Series of one client. A Java client with every metric on has some hundreds."""
MOST_SERIES: Final = 50_000
"""Series of all clients together."""
LONGEST_TEXT: Final = 256
"""Characters of a name, of a label and of its value."""
MOST_LABELS: Final = 16
MISSED_PUSHES: Final = 3
"""A client is forgotten after so many push intervals without a push; one that has said goodbye after the first."""
LEAST_SECONDS: Final = 60.0
"""It is kept for so long at least: scrapes are to see what it said last."""

_RESERVED: Final = ("kafka_", "kbroker_", "process_")
"""Beginnings of the node's own names, which no client may use."""
_OWN_LABELS: Final = ("client_id", "client_instance_id", "node")
"""Those that the node and the page give; with one of them twice a page is none."""
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

_Labels = tuple[tuple[str, str], ...]


class Point(Protocol):
    """A value of a client's metric (``kbroker.observe.telemetry.otlp.Point``)."""

    @property
    def name(self) -> str:
        """The name of OTLP, with dots."""

    @property
    def kind(self) -> str:
        """``gauge``, ``sum`` or ``histogram``."""

    @property
    def value(self) -> float:
        """The value; of a histogram, the sum of what was measured."""

    @property
    def labels(self) -> Mapping[str, Any]:
        """Its attributes."""

    @property
    def is_delta(self) -> bool:
        """Whether it is counted from the last push on."""

    @property
    def measured(self) -> int | None:
        """The number of values that a histogram has measured; None for other kinds."""


class Push(Protocol):
    """A client's push (``kbroker.rules.records.ClientMetrics``)."""

    @property
    def client_instance_id(self) -> str:
        """The client's own name for itself."""

    @property
    def client_id(self) -> str:
        """The client id of its requests."""

    @property
    def push_interval_ms(self) -> int:
        """The time between two pushes that it is to make."""

    @property
    def terminating(self) -> bool:
        """Whether it is the last one."""

    @property
    def points(self) -> Sequence[Point]:
        """The values, all finite."""


class _Client(NamedTuple):
    expires: float
    client_id: str
    keys: set[tuple[str, _Labels]]
    """Name and labels of its series."""


class ClientSeries:
    """The latest values of all clients. Times are seconds."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._values: dict[str, dict[tuple[str, _Labels], float]] = {}
        """By name, then by instance and labels."""
        self._kinds: dict[str, str] = {}
        """The type, by name."""
        self._size = 0
        self.dropped = 0
        """Values that were not taken, ever: beyond the bounds, or under a name of the node's own."""

    def __len__(self) -> int:
        return self._size

    @property
    def clients(self) -> int:
        """The number of clients that there are series of."""
        return len(self._clients)

    def push(self, pushed: Push, now: float) -> None:
        """Take a client's values. Those that are counted from the last push on are added up here."""
        self.expire(now)
        instance = pushed.client_instance_id
        known = self._clients.pop(instance, None)
        keys = set() if known is None else known.keys
        pushes = 1 if pushed.terminating else MISSED_PUSHES
        client_id = pushed.client_id[:LONGEST_TEXT]
        life = max(LEAST_SECONDS, pushes * pushed.push_interval_ms / 1000)
        self._clients[instance] = _Client(now + life, client_id, keys)
        if len(self._clients) > MOST_CLIENTS:
            self._forget(next(iter(self._clients)))
        for point in pushed.points:
            labels = _labels(point)
            if labels is None:
                self.dropped += 1
                continue
            for name, kind, value in _values_of(point):
                self._set(instance, keys, (name, labels), kind, value, adds=point.is_delta)

    def _set(
        self,
        instance: str,
        keys: set[tuple[str, _Labels]],
        key: tuple[str, _Labels],
        kind: str,
        value: float,
        *,
        adds: bool,
    ) -> None:
        name, labels = key
        if name.startswith(_RESERVED) or len(name) > LONGEST_TEXT:
            self.dropped += 1
            return
        if key not in keys:
            if len(keys) >= MOST_OF_A_CLIENT or self._size >= MOST_SERIES:
                self.dropped += 1
                return
            keys.add(key)
            self._size += 1
        self._kinds.setdefault(name, kind)
        values = self._values.setdefault(name, {})
        place = instance, labels
        values[place] = values.get(place, 0.0) + value if adds else value

    def expire(self, now: float) -> None:
        """Forget the clients that have not pushed for long."""
        for instance in [instance for instance, client in self._clients.items() if client.expires <= now]:
            self._forget(instance)

    def _forget(self, instance: str) -> None:
        client = self._clients.pop(instance)
        self._size -= len(client.keys)
        for name, labels in client.keys:
            values = self._values[name]
            del values[instance, labels]
            if not values:
                del self._values[name], self._kinds[name]

    def lines(self, now: float) -> Iterator[str]:
        """The lines of the page, by name. Clients may push meanwhile."""
        self.expire(now)
        for name, values in list(self._values.items()):
            if name in self._kinds:
                yield f"# HELP {name} Pushed by clients (KIP-714).\n# TYPE {name} {self._kinds[name]}\n"
                for labels, value in self._samples(list(values.items())):
                    yield exposition.line(name, labels, value)

    def _samples(self, values: list[tuple[tuple[str, _Labels], float]]) -> Iterator[tuple[_Labels, float]]:
        for (instance, labels), value in values:
            client = self._clients.get(instance)
            if client is not None:
                of_client = (("client_id", client.client_id), ("client_instance_id", instance))
                yield (*of_client, *labels), value


def _labels(point: Point) -> _Labels | None:
    """The labels of a point, as Prometheus may have them; None if there are too many, or they are too long."""
    if len(point.labels) > MOST_LABELS:
        return None
    found = {}
    for label, value in point.labels.items():
        text = str(value)
        if len(label) > LONGEST_TEXT or len(text) > LONGEST_TEXT:
            return None
        written = _written(label)
        if written in _OWN_LABELS or written.startswith("__"):
            continue  # as the node knows it; and "__name__" is the name
        found[written] = text
    return tuple(sorted(found.items()))


def _written(name: str) -> str:
    written = _NOT_IN_A_NAME.sub("_", name)
    return f"_{written}" if not written or written[0].isdigit() else written


def _values_of(point: Point) -> Iterator[tuple[str, str, float]]:
    """Name, type and value of each series that a point is."""
    name = _written(point.name)
    if point.kind == "histogram":
        yield f"{name}_sum", "untyped", point.value
        yield f"{name}_count", "untyped", float(point.measured or 0)
    elif point.kind == "sum":
        yield name if name.endswith("_total") else f"{name}_total", "counter", point.value
    else:
        yield name, "gauge", point.value
