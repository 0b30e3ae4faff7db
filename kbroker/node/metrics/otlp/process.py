"""The process that exports a node's metrics by OTLP over HTTP, with OpenTelemetry's own exporter.

It asks its node for figures with a line on its standard output, reads them from its standard input up to an empty
line, and exports them, some thousand values at a time. The next question says what has become of it. Whatever a
receiver does, it does to this process: an export has a deadline, and the process a limit of memory. It ends with its
input.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import BinaryIO, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kbroker.observe.metrics.otlp import Buckets, Line, Metric, Point, Shape, metrics_of
from kbroker.version import __version__

MOST_POINTS: Final = 2_000
"""Values in one request."""
MOST_MEMORY: Final = 512 << 20
"""Bytes of this process's data: a response may have any size."""
LONGEST_REASON: Final = 300
NICENESS: Final = 5
"""The process is this nice, so that requests go first."""

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class OutOfTime(Exception):
    """An export took too long as a whole, whatever the parts of it took."""


class Reasons(logging.Handler):
    """Remembers the first thing that the exporter logs, which is why an export fails."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember a message, without what it says of further attempts."""
        if not self._text:
            self._text = record.getMessage().partition(", retrying in")[0]

    def take(self) -> str:
        """The message since the last call."""
        text, self._text = self._text, ""
        return text


class Exports:
    """Sends metrics in requests of a limited size, until one fails."""

    def __init__(self, exporter: MetricExporter, about: Resource, started_ns: int, seconds: float) -> None:
        """``seconds``: the deadline of a request as a whole."""
        self._exporter = exporter
        self._resource = about
        self._started_ns = started_ns
        self._seconds = seconds
        self._reasons = Reasons()
        library = logging.getLogger("opentelemetry")
        library.addHandler(self._reasons)
        library.propagate = False
        self._metrics: dict[str, Metric] = {}
        self._points = 0
        self._failure = ""

    def add(self, metrics: Iterable[Metric]) -> None:
        """Take metrics, and send what there is when that is enough. After a failure they are dropped."""
        for metric in metrics:
            if self._failure:
                return
            found = self._metrics.get(metric.name)
            if found is None:
                self._metrics[metric.name] = metric._replace(points=list(metric.points))
            else:
                found.points.extend(metric.points)
            self._points += sum(_weight(point) for point in metric.points)
            if self._points >= MOST_POINTS:
                self._send()

    def end(self) -> str:
        """Send the rest; the reason for which not everything could be sent, or nothing."""
        if self._metrics and not self._failure:
            self._send()
        failure, self._failure = self._failure, ""
        self._metrics, self._points = {}, 0
        return failure

    def _send(self) -> None:
        metrics = [_sdk_metric(metric, self._started_ns) for metric in self._metrics.values()]
        self._metrics, self._points = {}, 0
        scope = ScopeMetrics(InstrumentationScope("kbroker", __version__), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        try:
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
            try:
                outcome = self._exporter.export(data)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Exception as error:  # whatever a receiver makes the library raise, and the alarm
            outcome, self._failure = MetricExportResult.FAILURE, f"{type(error).__name__}: {error}".removesuffix(": ")
        reason = self._reasons.take()
        if outcome is not MetricExportResult.SUCCESS:
            self._failure = _fit_for_a_log(reason or self._failure or "no reason is given")


def _fit_for_a_log(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:LONGEST_REASON]


def _weight(point: Point) -> int:
    return len(point.value.counts) if isinstance(point.value, Buckets) else 1


def _sdk_metric(metric: Metric, started_ns: int) -> SdkMetric:
    """The metric as OpenTelemetry's exporter takes it."""
    if metric.shape is Shape.HISTOGRAM:
        return SdkMetric(
            metric.name, metric.help, metric.unit, Histogram(list(_histograms(metric, started_ns)), _CUMULATIVE)
        )
    since = 0 if metric.shape is Shape.GAUGE else started_ns
    points = [
        NumberDataPoint(attributes, since, time_ns, value)
        for attributes, time_ns, value in metric.points
        if not isinstance(value, Buckets)
    ]
    if metric.shape is Shape.GAUGE:
        return SdkMetric(metric.name, metric.help, metric.unit, Gauge(points))
    data = Sum(points, _CUMULATIVE, is_monotonic=metric.shape is Shape.COUNTER)
    return SdkMetric(metric.name, metric.help, metric.unit, data)


def _histograms(metric: Metric, started_ns: int) -> Iterator[HistogramDataPoint]:
    for attributes, time_ns, value in metric.points:
        if isinstance(value, Buckets):
            yield HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=started_ns,
                time_unix_nano=time_ns,
                count=sum(value.counts),
                sum=value.total,
                bucket_counts=value.counts,
                explicit_bounds=value.bounds,
                min=None,  # type: ignore[arg-type]  # OTLP knows no minimum then, and nor does the node
                max=None,  # type: ignore[arg-type]
            )


def deadline_seconds(environment: Mapping[str, str]) -> float:
    """The time that a request and its attempts anew may take: the exporter's own limit is for each wait."""
    name = "OTEL_EXPORTER_OTLP_TIMEOUT"
    text = environment.get("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT") or environment.get(name) or "10"
    try:
        return 1.5 * max(0.1, float(text)) + 1
    except ValueError:
        return 16.0


def serve(exports: Exports, interval_seconds: float, source: BinaryIO, questions: BinaryIO) -> None:
    """Ask, export and wait, until the input ends. ``questions`` keeps nothing back.

    ``BrokenPipeError`` if nobody takes questions any more.
    """
    outcome: dict[str, str] | None = None
    while True:
        due = time.monotonic() + interval_seconds
        questions.write(json.dumps(outcome).encode() + b"\n")
        while (line := source.readline()) != b"\n":
            if not line.endswith(b"\n"):  # the node was killed
                return
            exports.add(metrics_of(Line.decode(line)))
        outcome = {"failure": exports.end()}
        ended, _, _ = select.select([source], [], [], max(0.0, due - time.monotonic()))
        if ended:  # the node writes nothing that it is not asked for
            return


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise OutOfTime("the receiver takes too long")


def main() -> None:
    """Export until the input ends."""
    os.nice(NICENESS)
    signal.signal(signal.SIGALRM, _out_of_time)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    questions = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # questions are the node's alone
    source = sys.stdin.buffer
    if not (line := source.readline()).endswith(b"\n"):
        return
    greeting = json.loads(line)
    about = Resource(greeting["resource"]).merge(OTELResourceDetector().detect())
    exporter = OTLPMetricExporter(endpoint=greeting["endpoint"])
    exports = Exports(exporter, about, greeting["started_ns"], deadline_seconds(os.environ))
    with suppress(BrokenPipeError):  # the node was killed
        serve(exports, greeting["interval_ms"] / 1000, source, questions)


if __name__ == "__main__":
    main()
