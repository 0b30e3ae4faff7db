"""The process that exports metrics, without a node: what a receiver or the library does, and how large a request is."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.re import parse_env_headers

from kbroker.config.otlp import ENDPOINT, otlp_settings
from kbroker.errors import FatalError
from kbroker.node.metrics.otlp.process import MOST_POINTS, Exports, OutOfTime, Reasons, deadline_seconds, serve
from kbroker.observe.metrics.otlp import Line, Metric, Point, Shape

SUCCESS, FAILURE = MetricExportResult.SUCCESS, MetricExportResult.FAILURE


class Exporter(MetricExporter):
    """Notes how many values come, and does as told."""

    def __init__(self, act: Callable[[], MetricExportResult] = lambda: SUCCESS) -> None:
        super().__init__()
        self.act = act
        self.sizes: list[int] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
        metrics = metrics_data.resource_metrics[0].scope_metrics[0].metrics
        assert len({metric.name for metric in metrics}) == len(metrics), "each name once in a request"
        self.sizes.append(sum(len(metric.data.data_points) for metric in metrics))
        return self.act()

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    def out_of_time(*_: Any) -> None:
        raise OutOfTime("the receiver takes too long")

    before = signal.signal(signal.SIGALRM, out_of_time)
    library = logging.getLogger("opentelemetry")
    handlers = list(library.handlers)
    yield
    signal.signal(signal.SIGALRM, before)
    library.handlers = handlers
    library.propagate = True


def metrics(count: int, name: str = "x") -> list[Metric]:
    return [Metric(name, "", "", Shape.GAUGE, [Point({"n": n}, 1, n) for n in range(count)])]


def exports(exporter: MetricExporter, seconds: float = 100) -> Exports:
    return Exports(exporter, Resource({}), 0, seconds)


def test_requests_have_a_limited_size() -> None:
    exporter = Exporter()
    made = exports(exporter)
    for _ in range(5):
        made.add(metrics(MOST_POINTS // 2))
    assert made.end() == ""
    assert exporter.sizes == [MOST_POINTS, MOST_POINTS, MOST_POINTS // 2]


def test_after_a_failure_the_rest_is_dropped_until_the_next_look() -> None:
    def fail() -> MetricExportResult:
        logging.getLogger("opentelemetry.exporter").warning("Transient error \x1b[31mX, retrying in 0.9s.")
        logging.getLogger("opentelemetry.exporter").error("Failed to export")
        return FAILURE

    exporter = Exporter(fail)
    made = exports(exporter)
    for _ in range(5):
        made.add(metrics(MOST_POINTS))
    assert made.end() == "Transient error  [31mX", "the cause, without what could change a terminal"
    assert len(exporter.sizes) == 1
    exporter.act = lambda: SUCCESS
    made.add(metrics(1))
    assert made.end() == "" and exporter.sizes[1:] == [1]


def test_an_export_without_an_end_is_ended() -> None:
    """A receiver may send a byte from time to time: no wait of the library's is too long then."""

    def drip() -> MetricExportResult:
        ends = time.monotonic() + 100
        while time.monotonic() < ends:
            time.sleep(0.001)
        return SUCCESS

    made = exports(Exporter(drip), 0.05)
    made.add(metrics(1))
    assert made.end() == "OutOfTime: the receiver takes too long"


def test_what_the_library_raises_is_a_failure() -> None:
    def lack() -> MetricExportResult:
        raise MemoryError

    made = exports(Exporter(lack))
    made.add(metrics(1))
    assert made.end() == "MemoryError"


def test_it_ends_with_its_input() -> None:
    """Within figures, and within a line, as well as between them."""
    line = Line("x", Shape.GAUGE, "", [], 1, [([], 1)]).encode()
    for text, outcomes in ((b"", 1), (line, 1), (line[:-5], 1), (line + line[:1], 1), (line + b"\n", 2)):
        reading, writing = os.pipe()
        os.write(writing, text)
        os.close(writing)
        asked, exporter = io.BytesIO(), Exporter()
        with os.fdopen(reading, "rb") as source:
            serve(exports(exporter), 0.0, source, asked)
        told = [json.loads(each) for each in asked.getvalue().splitlines()]
        assert told[0] is None and len(told) <= outcomes
        assert exporter.sizes == ([1] if outcomes == 2 else [])


@given(st.text(st.sampled_from('ab=,;: \t\n%0A2C"\\\u00e9\x1f'), max_size=30))
def test_headers_that_the_library_would_log_are_refused_at_the_start(headers: str) -> None:
    try:
        assert otlp_settings({ENDPOINT: "http://c"}, {"OTEL_EXPORTER_OTLP_HEADERS": headers})
    except FatalError:
        return
    reasons = Reasons()
    library = logging.getLogger("opentelemetry")
    library.addHandler(reasons)
    try:
        found = parse_env_headers(headers, liberal=True)
    finally:
        library.removeHandler(reasons)
    assert not reasons.take().rpartition("occurrences:")[2].strip()
    requests.Request("POST", "http://c", headers=dict(found)).prepare()  # it would show one that it does not take


def test_the_deadline_is_beyond_the_librarys_own() -> None:
    assert deadline_seconds({}) == 16
    assert deadline_seconds({"OTEL_EXPORTER_OTLP_TIMEOUT": "2"}) == 4
    assert deadline_seconds({"OTEL_EXPORTER_OTLP_TIMEOUT": "2", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "4"}) == 7
    assert deadline_seconds({"OTEL_EXPORTER_OTLP_TIMEOUT": "x"}) == 16
