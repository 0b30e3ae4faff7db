"""Clients' metrics as series for Prometheus: named, added up, bounded, forgotten."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kbroker.observe.metrics import clients
from kbroker.observe.metrics.clients import ClientSeries
from kbroker.observe.telemetry.otlp import Point

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def push(
    *points: Point, instance: str = "i", client: str = "c", interval_ms: int = 100_000, terminating: bool = False
) -> Any:
    return SimpleNamespace(
        client_instance_id=instance,
        client_id=client,
        push_interval_ms=interval_ms,
        terminating=terminating,
        points=points,
    )


def shown(series: ClientSeries, now: float = 0.0) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families("".join(series.lines(now)))
        for sample in family.samples
    }


OF_CLIENT = (("client_id", "c"), ("client_instance_id", "i"))


def test_names_types_and_labels() -> None:
    series = ClientSeries()
    series.push(
        push(
            Point("org.apache.kafka.consumer.fetch.latency.avg", "gauge", 2.5, {"client.id": "forged"}, 0),
            Point("records", "sum", 7, {"topic": "t-1"}, 0),
            Point("time", "histogram", 12, {}, 0, False, 4),
            Point("1x", "gauge", 1, {"client_id": "forged"}, 0),
        ),
        0,
    )
    assert shown(series) == {
        ("org_apache_kafka_consumer_fetch_latency_avg", OF_CLIENT): 2.5,
        ("records_total", (*OF_CLIENT, ("topic", "t-1"))): 7,
        ("time_sum", OF_CLIENT): 12,
        ("time_count", OF_CLIENT): 4,
        ("_1x", OF_CLIENT): 1,
    }
    types = re.findall(r"^# TYPE \w+ (\w+)$", "".join(series.lines(0)), re.MULTILINE)
    assert types == ["gauge", "counter", "untyped", "untyped", "gauge"]


def test_what_is_counted_from_push_to_push_is_added_up() -> None:
    series = ClientSeries()
    for value in (3, 4):
        series.push(push(Point("sent.total", "sum", value, {}, 0, True), Point("all", "sum", value, {}, 0)), 0)
    assert shown(series) == {("sent_total", OF_CLIENT): 7, ("all_total", OF_CLIENT): 4}


def test_no_client_keeps_the_page_from_being_read() -> None:
    """A sum beyond all numbers ended the page; one value with a label twice has Prometheus refuse all of it."""
    series = ClientSeries()
    for _ in range(2):
        series.push(push(Point("sent", "sum", 1.5e308, {"node": "2", "__name__": "up", "topic": "t"}, 0, True)), 0)
    assert shown(series) == {("sent_total", (*OF_CLIENT, ("topic", "t"))): math.inf}


def test_a_client_is_forgotten_when_it_does_not_push_any_more() -> None:
    series = ClientSeries()
    series.push(push(Point("a", "gauge", 1, {}, 0)), 0)
    series.push(push(Point("a", "gauge", 2, {}, 0), instance="j", terminating=True), 150)
    series.push(push(Point("a", "gauge", 3, {}, 0), instance="k", interval_ms=100), 240)
    assert {dict(labels)["client_instance_id"] for _, labels in shown(series, 249)} == {"i", "j", "k"}
    assert {dict(labels)["client_instance_id"] for _, labels in shown(series, 299)} == {"i", "k"}
    assert shown(series, 301) == {}
    assert (len(series), series.clients) == (0, 0)


def test_the_nodes_own_names_are_not_for_clients() -> None:
    series = ClientSeries()
    names = ("kafka.controller.kafkacontroller.activecontrollercount", "process.open.fds", "kbroker.x", "good")
    series.push(push(*(Point(name, "gauge", 1, {}, 0) for name in names)), 0)
    assert {name for name, _ in shown(series)} == {"good"}
    assert series.dropped == 3


def test_the_bounds_hold() -> None:
    series = ClientSeries()
    points = [Point(f"m{number}", "gauge", 1, {}, 0) for number in range(clients.MOST_OF_A_CLIENT + 9)]
    full = clients.MOST_SERIES // clients.MOST_OF_A_CLIENT
    for number in range(full + 1):
        series.push(push(*points, instance=f"a{number}"), 0)
    assert (len(series), series.clients) == (clients.MOST_SERIES, full + 1)
    assert series.dropped == 9 * full + len(points)
    for number in range(clients.MOST_CLIENTS):
        series.push(push(Point("m", "gauge", 1, {}, 0), instance=f"b{number}"), 0)
    assert series.clients == clients.MOST_CLIENTS
    assert {dict(labels)["client_instance_id"][0] for _, labels in shown(series)} == {"b"}
    many: dict[str, str | bool | int | float] = {f"l{number}": "" for number in range(clients.MOST_LABELS + 1)}
    before = series.dropped
    series.push(push(Point("m", "gauge", 1, many, 0), Point("n", "gauge", 1, {"x": "y" * 999}, 0), instance="b0"), 0)
    assert series.dropped == before + 2


_TEXT = st.text(max_size=20)
_POINTS = st.builds(
    Point,
    _TEXT,
    st.sampled_from(["gauge", "sum", "histogram"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(_TEXT, st.one_of(_TEXT, st.booleans(), st.integers()), max_size=3),
    st.just(0),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 1000)),
)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(_POINTS, max_size=4), st.booleans()), max_size=8))
def test_whatever_clients_push_the_page_can_be_read_and_all_is_forgotten(pushes: list[Any]) -> None:
    series = ClientSeries()
    for now, (instance, points, terminating) in enumerate(pushes):
        series.push(push(*points, instance=instance, terminating=terminating), now)
        lines = "".join(series.lines(now))
        assert lines.count("\n") == len(lines.split("\n")) - 1
        for line in lines.split("\n")[:-1]:
            assert line.startswith("# ") or "{" in line
    series.expire(1e9)
    assert (len(series), series.clients, list(series.lines(1e9))) == (0, 0, [])
