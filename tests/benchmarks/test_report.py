"""The tables of the benchmarks: ratios, verdicts, the document."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="the `bench` extra is not installed")
pytest.importorskip("psutil", reason="the `bench` extra is not installed")

from benchmarks import report
from benchmarks.__main__ import LATEST, TITLES
from benchmarks.report import Target
from kbroker.base import costs

PRODUCE = "produce-librdkafka-1000-p6-acks-all"
RESULTS = {
    PRODUCE: {
        "kbroker": [{"MB_per_s": 280.0, "cpu_s_per_GB": 2.0}, {"MB_per_s": 320.0, "cpu_s_per_GB": 2.4}],
        "apache": [{"MB_per_s": 200.0, "cpu_s_per_GB": 4.4}, {"MB_per_s": 200.0, "cpu_s_per_GB": 4.4}],
    },
    "idle": {"kbroker": [{"MB": 50.0, "cpu_percent": 1.5}]},
}


def test_a_run_with_an_earlier_checkout_is_compared_with_that() -> None:
    results = {PRODUCE: {"kbroker": RESULTS[PRODUCE]["kbroker"], "before": [{"MB_per_s": 280.0}, {"MB_per_s": 160.0}]}}
    assert report.reference(RESULTS) == "apache"
    assert report.reference(results) == "before"
    assert report.ratios(results, PRODUCE, "MB_per_s") == [1.0, 2.0]


def test_every_target_names_a_workload_a_quick_run_or_a_full_run_has() -> None:
    assert {target.workload for target in report.TARGETS} <= set(TITLES)
    assert {target.figure for target in report.TARGETS} <= set(report.UNITS)


@pytest.mark.parametrize(
    ("figure", "value", "expected"),
    [
        ("MB_per_s", 1.7, "aim"),
        ("MB_per_s", 1.3, "reached"),
        ("MB_per_s", 1.29, "MISSED"),
        ("MB_per_s", None, "not measured"),
        ("cpu_s_per_GB", 0.9, "aim"),
        ("cpu_s_per_GB", 1.31, "MISSED"),
    ],
)
def test_verdict(figure: str, value: float | None, expected: str) -> None:
    higher = Target("w", figure, 1.3, 1.7) if figure in report.MORE_IS_BETTER else Target("w", figure, 1.3, 1.0)
    assert report.verdict(higher, value) == expected


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (0.4, 0.5, "reached"),
        (0.6, 0.5, "not shown"),
        (1.4, 0.5, "not shown"),
        (1.6, 0.5, "MISSED"),
        (None, 0.5, "not measured"),
    ],
)
def test_a_figure_that_may_be_off_by_more_than_it_is_away_shows_nothing(
    value: float | None, error: float, expected: str
) -> None:
    assert report.verdict(Target("w", "cpu_more_percent", 1, None, is_ratio=False), value, error) == expected


def test_the_row_of_a_small_difference_minds_its_error() -> None:
    results = {"metrics-requests": {"kbroker": [{"cpu_more_percent": 0.6, "cpu_more_error_percent": 0.5}]}}
    assert [row[-2] for row in report.target_rows(results, TITLES)] == ["not shown"]


def test_rows_hold_medians_ratios_and_verdicts() -> None:
    rows = {row[0]: row[1:] for row in report.target_rows(RESULTS, TITLES)}
    title = TITLES[PRODUCE]
    assert rows[f"{title}: MB/s"] == ["200", "300", "1.50 x", "≥ 1.3 x", "≥ 1.7 x", "reached", "2: 1.40 to 1.60"]
    assert rows[f"{title}: server CPU s/GB"] == [
        "4.40",
        "2.20",
        "0.50 x",
        "≤ 0.6 x",
        "≤ 0.4 x",
        "reached",
        "2: 0.45 to 0.55",
    ]
    # An absolute figure needs no Apache Kafka beside it.
    assert rows["idle: memory, MB"] == ["-", "50.0", "-", "≤ 60", "≤ 35", "reached", "1"]
    assert rows["idle: CPU, %"][-2] == "MISSED"


def test_document_holds_both_tables_and_the_failures() -> None:
    text = report.document(
        {
            "machine": dict.fromkeys(("processors", "model", "memory_GB", "system", "python"), "?")
            | {"busy_percent": 40.0},
            "results": RESULTS,
            "quick": True,
            "failures": ["latency on kbroker: LoadError: closed by the broker"],
            "apache_kafka": "4.3.1",
            "client": "librdkafka 2.16.0",
            "date": "2026-01-01 00:00 UTC",
            "commit": "abc",
        },
        TITLES,
    )
    assert "A quick run" in text
    assert "NOT quiet" in text
    assert "| idle: memory, MB | - | 50.0 | - | 1 |" in text
    assert "## What failed\n\n- latency on kbroker" in text


def test_runs_are_told_as_one() -> None:
    def run(load: float, results: dict[str, Any], **fields: Any) -> dict[str, Any]:
        machine = {"busy_percent": load}
        fixed = {"commit": "c", "cut_short": False, "quick": False, "apache_kafka": "4.3.1", "client": "librdkafka"}
        return {**fixed, "date": f"at {load}", "machine": machine, "failures": [], "results": results, **fields}

    first = run(
        0.4,
        {"a": {"kbroker": [{"p50_ms": 1}]}, "b": {"kbroker": [{"p50_ms": 4}]}},
        failures=["a on kbroker: it", "b on apache: that"],
    )
    second = run(0.1, {"b": {"kbroker": [{"p50_ms": 2}]}})
    whole = report.joined([first, second])
    both_rounds = {"kbroker": [{"p50_ms": 4}, {"p50_ms": 2}]}
    assert whole["results"] == {"a": first["results"]["a"], "b": both_rounds}, "rounds of one commit add up"
    later = run(0.1, {"b": {"kbroker": [{"p50_ms": 2}]}}, commit="d")
    several = report.joined([first, later])
    assert several["results"]["b"] == later["results"]["b"], "the last commit counts"
    again = report.joined([several, first, later])
    assert [len(again["results"][name]["kbroker"]) for name in "ab"] == [2, 2], "what was joined may be joined again"
    assert whole["date"] == "at 0.4, at 0.1"
    assert whole["machine"] == {"busy_percent": 0.4}
    assert whole["failures"] == ["a on kbroker: it"], "b was run again"
    assert whole["commits"] == {"a": "c", "b": "c"}
    with pytest.raises(ValueError, match="differ in client"):
        report.joined([first, run(0.1, {}, client="another")])
    with pytest.raises(ValueError, match="cut short"):
        report.joined([first, run(0.1, {}, cut_short=True)])


def test_rounds_of_several_commits_are_told_apart() -> None:
    results = {"w": {"kbroker": [{"mb_s": 3.0}], "apache": [{"mb_s": 2.0}]}}
    assert report.rounds_of(results, "w", "mb_s", {"w": "abc", "v": "def"}) == "1 of abc"
    assert report.rounds_of(results, "w", "mb_s", {"w": "abc", "v": "abc"}) == "1"


def test_ratios_are_of_rounds_and_told_with_their_range() -> None:
    """The machine was half as fast in the second round, and kbroker 1.5 times as fast as the other in most."""
    rates = {"kbroker": (300.0, 150.0, 500.0), "apache": (200.0, 100.0, 250.0)}
    results = {"w": {server: [{"mb_s": value} for value in values] for server, values in rates.items()}}
    assert report.median_ratio(results, "w", "mb_s") == 1.5
    assert report.rounds_of(results, "w", "mb_s") == "3: 1.50 to 2.00"
    assert report.median_ratio(results, "w", "p50_ms") is None
    assert report.rounds_of(results, "w", "p50_ms") == "3"
    del results["w"]["apache"][1:]
    assert report.rounds_of(results, "w", "mb_s") == "3"
    assert report.median_ratio({}, "w", "mb_s") is None


def test_each_cost_that_capacity_reckons_with_names_a_row() -> None:
    assert [cost.source for cost in costs.COSTS if not any(title in cost.source for title in TITLES.values())] == []


def test_the_page_says_of_each_miss_what_is_known() -> None:
    results = json.loads(LATEST.read_text())["results"]
    missed = {each.target.workload for each in report.judged(results) if each.verdict == "MISSED"}
    assert missed - {name for names in report.WHY_MISSED for name in names} == set()


def test_each_cost_is_as_the_page_has_measured_it() -> None:
    results = json.loads(LATEST.read_text())["results"]

    def of(workload: str, figure: str) -> float:
        value = report.median(results, workload, "kbroker", figure)
        assert value is not None
        return value

    request = of("requests", "cpu_us_per_request") * 1e-6
    byte_in, byte_out = of(PRODUCE, "cpu_s_per_GB") * 1e-9, of("consume-librdkafka-1000-p6", "cpu_s_per_GB") * 1e-9
    start = of("startup", "first_record_s")
    measured = {
        costs.REQUEST: request,
        costs.REQUEST_ALONE: request
        * of("list-offsets", "cpu_us_per_request")
        / of("heartbeat-requests", "cpu_us_per_request"),
        costs.RECORD: (of("produce-librdkafka-100-p6-acks-all", "cpu_s_per_GB") * 1e-9 - byte_in) * 100,
        costs.BYTE_IN: byte_in,
        costs.BYTE_OUT: byte_out,
        costs.BYTE_COPIED: (of("cluster-produce", "cpu_s_per_GB") * 1e-9 - byte_in) / 2 - byte_out,
        costs.BYTE_IN_TLS: of("tls-produce", "cpu_s_per_GB") * 1e-9 - byte_in,
        costs.BYTE_OUT_TLS: of("tls-consume", "cpu_s_per_GB") * 1e-9 - byte_out,
        costs.REQUEST_TLS: of("tls-requests", "cpu_us_per_request") * 1e-6 - request,
        costs.NODE: of("memory", "MB") * 1e6,
        costs.REPLICA: of("restart-many", "partition_KB") * 1e3,
        costs.CONNECTION: of("idle-connections", "more_MB") * 1e6 / 1000,
        costs.KNOWN_PARTITION: of("metadata-1000000", "image_bytes"),
        costs.START: start,
        costs.REPLICA_START: (of("restart-many", "killed_s") - start) / 10_000,
    }
    assert set(measured) == set(costs.COSTS)
    assert {cost.what: cost.value for cost in measured} == pytest.approx(
        {cost.what: value for cost, value in measured.items()}, rel=0.05
    )
