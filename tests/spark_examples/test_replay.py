"""The pace of the replay, by a clock of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")
pytest.importorskip("pandas", reason="the `spark` extra is not installed")

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from spark_examples import replay
from spark_examples.topics import LONGEST_WAIT, Record


class Clock:
    """Time passes only while someone waits."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.longest = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.longest = max(self.longest, seconds)
        self.seconds += seconds


def events(moments: list[int]) -> Iterator[tuple[float, Record]]:
    for moment in moments:
        yield moment, Record(None, b"", moment)


def test_an_hour_of_events_takes_a_second_at_3600x() -> None:
    clock = Clock()
    due = [
        (record.timestamp_ms, clock.now() - 1_000)
        for record in replay.paced(events([5_000, 1_805_000, 3_605_000]), 3_600, now=clock.now, wait=clock.wait)
    ]
    assert due == [(5_000, 0.0), (1_805_000, pytest.approx(0.5)), (3_605_000, pytest.approx(1.0))]
    assert clock.longest <= LONGEST_WAIT


def test_at_most_speed_nothing_waits() -> None:
    clock = Clock()
    assert len(list(replay.paced(events([0, 10**12]), math.inf, now=clock.now, wait=clock.wait))) == 2
    assert clock.longest == 0


@given(st.lists(st.integers(0, 10**6), max_size=20), st.floats(1, 10**6))
def test_none_is_early_none_is_lost_and_order_is_kept(gaps: list[int], speed: float) -> None:
    clock = Clock()
    moments = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    seen = []
    for record in replay.paced(events(moments), speed, now=clock.now, wait=clock.wait):
        assert clock.now() - 1_000 >= (record.timestamp_ms - moments[0]) / 1000 / speed - 1e-6
        seen.append(record.timestamp_ms)
    assert seen == moments


def test_no_record_is_sent_before_all_that_are_an_hour_older_are_acknowledged() -> None:
    """The replay may have been held up by anything: partitions are written one after the other."""
    moments = [0, 1_000_000, 3_500_000, 3_600_000, 3_700_000, 90_000_000, 90_000_001]
    sent: list[int] = []
    acknowledged = 0

    def flush() -> None:
        nonlocal acknowledged
        acknowledged = len(sent)

    for moment, record in replay.together(events(moments), flush):
        assert all(moment - earlier < replay.TOGETHER_MS for earlier in sent[acknowledged:])
        sent.append(record.timestamp_ms)
    assert sent == moments


@pytest.mark.parametrize(("text", "value"), [("36000x", 36_000), ("1.5", 1.5), ("max", math.inf)])
def test_speeds(text: str, value: float) -> None:
    assert replay.speed(text) == value


@pytest.mark.parametrize("text", ["0x", "-1", "fast", "nan"])
def test_no_speeds(text: str) -> None:
    with pytest.raises(ValueError):
        replay.speed(text)


def test_flights_come_when_they_left_and_cancelled_ones_when_they_should_have() -> None:
    hour = "2013-01-01T10:00:00Z"
    frame = pd.DataFrame(
        {
            "flight": [1, 2, 3, 4],
            "dep_delay": [30.0, None, -5.0, 10.0],
            "minute": [0, 20, 30, 10],
            "time_hour": [hour] * 4,
        }
    )
    assert replay.in_order_of_departure(frame)["flight"].tolist() == [2, 4, 3, 1]
