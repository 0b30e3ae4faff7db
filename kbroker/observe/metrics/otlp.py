"""Metrics for OpenTelemetry: lines of figures become metrics under the names that its dashboards know.

Pure, and without OpenTelemetry's packages. A node writes the lines, a process beside it reads them
(`kbroker.node.metrics.otlp`). Names of brokers are those of the JMX rules in OpenTelemetry's instrumentation for Java
(``kafka-broker``), names of groups and partitions those of the collector's ``kafkametricsreceiver``, names of the
process those of the semantic conventions. Whatever has none keeps the page's, without a unit, as a collector that
scrapes the page would send it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

Attributes: TypeAlias = dict[str, str | int]


class Shape(StrEnum):
    """The kind of OTLP data that a metric is."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """A sum that only grows."""
    UP_DOWN = "updown"
    """A sum that shrinks, too: values of nodes may be added up."""
    HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """Observations: their sum, and how many there were by size."""

    total: float
    counts: list[int]
    """A count for each bound, and a last one for what is greater than all of them."""
    bounds: Sequence[float]


class Point(NamedTuple):
    """A value of a metric."""

    attributes: Attributes
    time_ns: int
    """Nanoseconds since 1970."""
    value: int | float | Buckets


class Metric(NamedTuple):
    """Values of one name; more of them may follow under the same."""

    name: str
    unit: str
    help: str
    shape: Shape
    points: list[Point]


class Line(NamedTuple):
    """Some values of one family, as a node writes them. A family may have several lines."""

    name: str
    shape: Shape
    help: str
    labels: list[str] | None
    """None: each sample has its own; its names and values alternate."""
    time_ns: int
    samples: Sequence[tuple[Sequence[str], float]]
    """Values of the labels, and the value."""
    histograms: Sequence[tuple[Sequence[str], float, list[int]]] = ()
    """Values of the labels, the sum, and the counts; such a line has no samples."""
    bounds: Sequence[float] = ()

    def encode(self) -> bytes:
        """The line with its end."""
        return json.dumps(self, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, text: bytes) -> Line:
        """The reverse of `encode`."""
        name, shape, *others = json.loads(text)
        return cls(name, Shape(shape), *others)


class _Named(NamedTuple):
    """The name of a metric in OpenTelemetry, and what else is otherwise there."""

    name: str
    unit: str
    shape: Shape
    constants: Mapping[str, str] = {}
    """Attributes that every value has."""
    renamed: Mapping[str, str] = {}
    """Names of attributes by those of labels; empty for a label that is left out."""


_TOPICS: Final = "kafka_server_brokertopicmetrics_"

TOTALS: Final[dict[str, _Named]] = {
    f"{_TOPICS}messagesin_total": _Named("kafka.message.count", "{messages}", Shape.COUNTER),
    f"{_TOPICS}bytesin_total": _Named("kafka.network.io", "By", Shape.COUNTER, {"direction": "in"}),
    f"{_TOPICS}bytesout_total": _Named("kafka.network.io", "By", Shape.COUNTER, {"direction": "out"}),
    f"{_TOPICS}totalproducerequests_total": _Named(
        "kafka.request.count", "{requests}", Shape.COUNTER, {"type": "produce"}
    ),
    f"{_TOPICS}totalfetchrequests_total": _Named("kafka.request.count", "{requests}", Shape.COUNTER, {"type": "fetch"}),
    f"{_TOPICS}failedproducerequests_total": _Named(
        "kafka.request.failed", "{requests}", Shape.COUNTER, {"type": "produce"}
    ),
    f"{_TOPICS}failedfetchrequests_total": _Named(
        "kafka.request.failed", "{requests}", Shape.COUNTER, {"type": "fetch"}
    ),
}
"""Values over all topics, by the name of a family whose other values are those of topics."""

_P: Final = "kafka_topic_partition_"
_GROUP: Final = {"consumergroup": "group"}

NAMES: Final[dict[str, _Named]] = {
    "kafka_server_delayedoperationpurgatory_purgatorysize": _Named(
        "kafka.purgatory.size", "{requests}", Shape.UP_DOWN, renamed={"delayedOperation": "type"}
    ),
    "kafka_server_replicamanager_partitioncount": _Named("kafka.partition.count", "{partitions}", Shape.UP_DOWN),
    "kafka_controller_kafkacontroller_offlinepartitionscount": _Named(
        "kafka.partition.offline", "{partitions}", Shape.UP_DOWN
    ),
    "kafka_server_replicamanager_underreplicatedpartitions": _Named(
        "kafka.partition.underReplicated", "{partitions}", Shape.UP_DOWN
    ),
    "kafka_server_replicamanager_isrshrinks_total": _Named(
        "kafka.isr.operation.count", "{operations}", Shape.UP_DOWN, {"operation": "shrink"}
    ),
    "kafka_server_replicamanager_isrexpands_total": _Named(
        "kafka.isr.operation.count", "{operations}", Shape.UP_DOWN, {"operation": "expand"}
    ),
    "kafka_server_replicafetchermanager_maxlag": _Named(
        "kafka.lag.max", "{messages}", Shape.GAUGE, renamed={"clientId": ""}
    ),
    "kafka_server_replicamanager_leadercount": _Named("kafka.leader.count", "{partitions}", Shape.GAUGE),
    "kafka_controller_kafkacontroller_activecontrollercount": _Named(
        "kafka.controller.active.count", "{controllers}", Shape.UP_DOWN
    ),
    "kafka_controller_controllerstats_uncleanleaderelections_total": _Named(
        "kafka.leaderElection.unclean.count", "{elections}", Shape.COUNTER
    ),
    "kafka_network_socketserver_networkprocessoravgidle_percent": _Named(
        "kafka.network.processor.idle.average", "1", Shape.GAUGE
    ),
    "kafka_brokers": _Named("kafka.brokers", "{brokers}", Shape.GAUGE),
    "kafka_topic_partitions": _Named("kafka.topic.partitions", "{partitions}", Shape.UP_DOWN),
    f"{_P}current_offset": _Named("kafka.partition.current_offset", "1", Shape.GAUGE),
    f"{_P}oldest_offset": _Named("kafka.partition.oldest_offset", "1", Shape.GAUGE),
    f"{_P}replicas": _Named("kafka.partition.replicas", "{replicas}", Shape.UP_DOWN),
    f"{_P}in_sync_replica": _Named("kafka.partition.replicas_in_sync", "{replicas}", Shape.UP_DOWN),
    "kafka_consumergroup_members": _Named("kafka.consumer_group.members", "{members}", Shape.UP_DOWN, renamed=_GROUP),
    "kafka_consumergroup_current_offset": _Named("kafka.consumer_group.offset", "1", Shape.GAUGE, renamed=_GROUP),
    "kafka_consumergroup_current_offset_sum": _Named(
        "kafka.consumer_group.offset_sum", "1", Shape.GAUGE, renamed=_GROUP
    ),
    "kafka_consumergroup_lag": _Named("kafka.consumer_group.lag", "1", Shape.GAUGE, renamed=_GROUP),
    "kafka_consumergroup_lag_sum": _Named("kafka.consumer_group.lag_sum", "1", Shape.GAUGE, renamed=_GROUP),
    "process_cpu_seconds_total": _Named("process.cpu.time", "s", Shape.COUNTER),
    "process_resident_memory_bytes": _Named("process.memory.usage", "By", Shape.UP_DOWN),
    "process_open_fds": _Named("process.open_file_descriptor.count", "{file_descriptor}", Shape.UP_DOWN),
}
"""By the page's name in its default dialect."""

_TIMES: Final = "kafka_network_requestmetrics_"
_FLUSH: Final = "kafka_log_logflushstats_logflushrateandtimems"

PERCENTILES: Final[dict[str, dict[str, str]]] = {
    f"{_TIMES}totaltimems": {"0.50": "kafka.request.time.50p", "0.99": "kafka.request.time.99p"},
    f"{_TIMES}requestqueuetimems": {"0.99": "kafka.request.queue.time.99p"},
    f"{_TIMES}localtimems": {"0.99": "kafka.request.local.time.99p"},
    f"{_TIMES}remotetimems": {"0.99": "kafka.request.remote.time.99p"},
    f"{_TIMES}responsequeuetimems": {"0.99": "kafka.request.response.queue.time.99p"},
    f"{_TIMES}responsesendtimems": {"0.99": "kafka.request.response.send.time.99p"},
    _FLUSH: {"0.50": "kafka.logs.flush.time.50p", "0.99": "kafka.logs.flush.time.99p"},
}
"""Names of quantiles in milliseconds, by the page's name of what was observed and by the share."""
MEASURED: Final = ("Produce", "FetchConsumer", "FetchFollower")
"""The requests that have these quantiles: those that the JMX rules ask for."""

_MOST: Final = 2.0**63
"""Integers of OTLP are smaller."""


def metrics_of(line: Line) -> Iterator[Metric]:
    """The metrics that a line of a node has."""
    if line.shape is Shape.HISTOGRAM:
        yield _histogram(line)
        if line.name == _FLUSH:
            counts = [Point(point.attributes, point.time_ns, sum(_counts(point))) for point in _points(line)]
            yield Metric("kafka.logs.flush.count", "", line.help, Shape.COUNTER, counts)
    elif line.name in PERCENTILES:
        yield from _percentiles(line)
    elif line.labels == ["topic"] and line.name.startswith(_TOPICS):
        yield from _traffic(line)
    elif line.name in NAMES:
        yield _renamed(line, NAMES[line.name])
    else:
        yield Metric(line.name, "", line.help, line.shape, _points(line))


def _traffic(line: Line) -> Iterator[Metric]:
    """A count by topic, and that over all topics under a name of its own.

    The latter is left out where there is no such name: whoever adds up the values of a name would count twice.
    """
    total = TOTALS.get(line.name)
    if total is not None:
        whole = [sample for sample in line.samples if not sample[0][0]]
        if whole:
            yield _renamed(line._replace(samples=whole), total)
    single = [sample for sample in line.samples if sample[0][0]]
    if single:
        yield Metric(line.name, "", line.help, line.shape, _points(line._replace(samples=single)))


def _percentiles(line: Line) -> Iterator[Metric]:
    """Quantiles, each share under a name of its own; the share is the last label."""
    for share, name in PERCENTILES[line.name].items():
        points = [
            Point({"type": labels[0]} if len(labels) > 1 else {}, line.time_ns, value)
            for labels, value in line.samples
            if labels[-1] == share
        ]
        if points:
            yield Metric(name, "ms", line.help, Shape.GAUGE, points)


def _renamed(line: Line, named: _Named) -> Metric:
    points = [
        Point(
            {
                **{
                    name: _typed(label, text)
                    for label, text in attributes.items()
                    if (name := named.renamed.get(label, label))
                },
                **named.constants,
            },
            time_ns,
            value,
        )
        for attributes, time_ns, value in _points(line)
    ]
    return Metric(named.name, named.unit, line.help, named.shape, points)


def _typed(label: str, value: str | int) -> str | int:
    """A partition is a number to the collector's receiver."""
    return int(value) if label == "partition" else value


def _histogram(line: Line) -> Metric:
    return Metric(line.name, "", line.help, Shape.HISTOGRAM, _points(line))


def _counts(point: Point) -> Sequence[int]:
    assert isinstance(point.value, Buckets)
    return point.value.counts


def _points(line: Line) -> list[Point]:
    if line.shape is Shape.HISTOGRAM:
        return [
            Point(_attributes(line, labels), line.time_ns, Buckets(total, counts, line.bounds))
            for labels, total, counts in line.histograms
        ]
    return [Point(_attributes(line, labels), line.time_ns, _number(value)) for labels, value in line.samples]


def _attributes(line: Line, labels: Sequence[str]) -> Attributes:
    """The labels by name; one without a value is left out, as on the page."""
    names, values = (labels[::2], labels[1::2]) if line.labels is None else (line.labels, labels)
    return {label: _text(text) for label, text in zip(names, values, strict=True) if text}


def _text(text: str) -> str:
    """Text that can be UTF-8: a path on a disk may hold bytes that are none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _number(value: float) -> int | float:
    """Whole numbers as such: counts and offsets may be larger than what a float has places for."""
    return value if isinstance(value, float) and (not value.is_integer() or abs(value) >= _MOST) else int(value)
