"""The pipelines of spark_examples, each by its command line, on a slice of the data; pandas says what is right."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from compat_tests.spark.processes import kill_with_java, python
from spark_examples import (
    batch_report,
    dead_letters,
    delays,
    flights,
    live,
    planes,
    planes_join,
    replay,
    stream_available_now,
    upserts,
    weather,
    weather_join,
)
from spark_examples.command import moment_ms
from spark_examples.topics import PARTITIONS, Record, create_topic, last_values, produce_records, read_records
from tests.patience import LONG

WEEK = flights.load(start_ms=moment_ms("2013-01-01"), end_ms=moment_ms("2013-01-08"))
KEYS = ["carrier", "flight", "origin", "time_hour", "minute"]


@pytest.fixture(scope="module")
def week(bootstrap: str) -> str:
    """A topic with the 6,037 flights of the first week; no test writes to it."""
    name = f"week-{os.getpid()}"
    assert flights.provide(bootstrap, name, WEEK) == len(WEEK)
    return name


def mean_delays(frame: pd.DataFrame) -> list[tuple[str, int, int, float]]:
    return [(d.carrier, d.flights, d.departed, d.mean_delay_minutes) for d in flights.mean_delay_by_carrier(frame)]


def parquet(spark: Any, path: Path) -> pd.DataFrame:
    """The table as Spark reads it; it knows which files of the folder are in it."""
    frame: pd.DataFrame = spark.read.parquet(str(path)).toPandas()
    return frame


# --- a batch report, with times and with offsets as bounds


def test_batch_report_between_two_moments(
    spark: Any, bootstrap: str, week: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "report.png"
    batch_report.main(["--bootstrap", bootstrap, "--topic", week, "--from", "2013-01-03T12:00", "--to", "2013-01-05",
                       "--plot", str(plot)])  # fmt: skip
    scheduled = flights.scheduled_departure_ms(WEEK)
    inside = WEEK[(scheduled >= moment_ms("2013-01-03T12:00")) & (scheduled < moment_ms("2013-01-05"))]
    shown, _, read = capsys.readouterr().out.partition("\n\n")
    for carrier, n, departed, mean in mean_delays(inside):
        assert f"{n:,}  {departed:>8,}  {mean:.2f}" in row_of(shown, carrier)
    assert len(shown.splitlines()) == 2 + inside["carrier"].nunique()
    assert sum(int(line.split()[-1]) for line in read.splitlines()[2:]) == len(inside)
    assert plot.read_bytes().startswith(b"\x89PNG")


def row_of(table: str, start: str) -> str:
    """The row that starts so; numbers in it stand two spaces apart."""
    [line] = [line for line in table.splitlines() if line.startswith(f"{start} ")]
    return line


def test_batch_report_between_two_offsets(
    spark: Any, bootstrap: str, week: str, capsys: pytest.CaptureFixture[str]
) -> None:
    starting = json.dumps({week: {str(p): 100 if p == 0 else -2 for p in range(PARTITIONS)}})
    ending = json.dumps({week: {str(p): 350 if p == 0 else 0 for p in range(PARTITIONS)}})
    batch_report.main(
        ["--bootstrap", bootstrap, "--topic", week, "--starting-offsets", starting, "--ending-offsets", ending]
    )
    assert capsys.readouterr().out.splitlines()[-1].split() == ["0", "100", "349", "250"]


def test_batch_report_of_a_time_without_flights(
    spark: Any, bootstrap: str, week: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batch_report.main(["--bootstrap", bootstrap, "--topic", week, "--from", "2014-06-01"])
    assert [line for line in capsys.readouterr().out.splitlines() if line and line[0] not in "cp-"] == []


# --- windows in event time: replay, update mode, the live table


def test_live_delays_are_exact_and_nothing_is_late(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path
) -> None:
    two_days = flights.load(start_ms=moment_ms("2013-01-01"), end_ms=moment_ms("2013-01-03"))
    result = live.run(bootstrap, tmp_path, topic=new_name(), frame=two_days, speed=36_000)
    assert result.differences() == []
    assert (result.replayed, result.dropped) == (len(two_days), 0)
    assert len(result.answer) == len(result.truth) > 50
    assert result.replay_seconds >= 4  # two days at ten hours a second
    # In update mode a row is written each time it grows; once at least, where Spark is slow and all come in one batch.
    assert result.updates >= len(result.answer)
    live.save_plot(result, tmp_path / "live.png")
    assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")


def test_delays_drop_what_is_older_than_the_watermark(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flights of January 1st that come when those of the 4th have been counted: too late for a day's watermark."""
    topic, result = new_name(), new_name()
    arguments = ["--bootstrap", bootstrap, "--topic", topic, "--result-topic", result,
                 "--checkpoint", str(tmp_path / "checkpoint")]  # fmt: skip
    fourth = flights.load(200, start_ms=moment_ms("2013-01-04"))
    first = flights.load(50, start_ms=moment_ms("2013-01-01"))
    flights.provide(bootstrap, topic, fourth)
    delays.main(arguments)
    assert delays.read_delays(bootstrap, result) == delays.delays_of(fourth)

    flights.produce(bootstrap, topic, first)
    delays.main(arguments)
    assert delays.read_delays(bootstrap, result) == delays.delays_of(fourth)
    assert "50 flights in 1 micro-batches" in (out := capsys.readouterr().out)
    assert " 0 rows dropped" not in out.splitlines()[-15]


def test_replay_keeps_event_times_and_the_order_of_departure(bootstrap: str, new_name: Callable[[], str]) -> None:
    topic = new_name()
    replay.main(["--bootstrap", bootstrap, "--topic", topic, "--speed", "max", "--from", "2013-01-01",
                 "--to", "2013-01-02"])  # fmt: skip
    day = flights.load(start_ms=moment_ms("2013-01-01"), end_ms=moment_ms("2013-01-02"))
    found = list(read_records(bootstrap, topic))
    assert sorted(m.timestamp()[1] for m in found) == sorted(flights.scheduled_departure_ms(day))
    for partition in range(PARTITIONS):
        values = [json.loads(m.value() or b"") for m in found if m.partition() == partition]
        departed = replay.departure_ms(pd.DataFrame(values)).tolist()
        assert departed == sorted(departed)


# --- joins


def test_departures_join_their_hour_of_weather(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Left join: also the flights without weather come out, as soon as the watermark has passed them."""
    hours = weather.load(start_ms=moment_ms("2013-01-01"), end_ms=moment_ms("2013-01-08"))
    gap = hours["time_hour"].between("2013-01-03T15:00:00Z", "2013-01-03T17:00:00Z") & (hours["origin"] == "JFK")
    hours = hours[~gap]
    topic, weather_topic = new_name(), new_name()
    flights.provide(bootstrap, topic, WEEK)
    weather.provide(bootstrap, weather_topic, hours)
    # A flight and an hour of ten days later move the watermark over all of the week.
    later = moment_ms("2013-01-18")
    sentinel = flights.load(1, start_ms=later)
    flights.produce(bootstrap, topic, sentinel)
    produce_records(bootstrap, weather_topic, weather.records(weather.load(3, start_ms=later)), total=3)

    plot = tmp_path / "weather.png"
    weather_join.main(["--bootstrap", bootstrap, "--topic", topic, "--weather-topic", weather_topic, "--how", "left",
                       "--into", str(tmp_path), "--plot", str(plot)])  # fmt: skip

    columns = ["carrier", "flight", "origin", "dest", "dep_delay", *weather_join.MEASURES]
    truth = WEEK.merge(hours, how="left", on=["origin", "time_hour"])
    assert truth["temp"].isna().sum() > 20
    got = parquet(spark, tmp_path / "table-left")
    got = got[got["timestamp"] < pd.Timestamp("2013-01-10")]
    assert rows(got, columns) == rows(truth, columns)
    out = capsys.readouterr().out
    assert " 0 dropped as too late" in out and "not known" in out
    assert plot.read_bytes().startswith(b"\x89PNG")


def rows(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    """The rows in an order of their own, absent values alike."""
    plain = frame[columns].astype(object)
    return sorted(str(row) for row in plain.where(plain.notna(), None).map(_number).itertuples(index=False, name=None))


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) else value


def test_flights_join_the_compacted_table_of_planes(
    spark: Any, bootstrap: str, week: str, new_name: Callable[[], str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Exact before and after the log cleaner, which leaves the last values; a change is seen in the next run."""
    register = planes.load()
    valid = planes.valid(register)
    planes_topic, topic = new_name(), new_name()
    assert planes.provide(bootstrap, planes_topic, register) == 3 * 3_322 + 70
    flights.provide(bootstrap, topic, WEEK.head(1_000))
    arguments = ["--bootstrap", bootstrap, "--topic", topic, "--planes-topic", planes_topic, "--into", str(tmp_path)]
    planes_join.main(arguments)
    columns = ["carrier", "flight", "tailnum", "origin", "manufacturer", "model", "seats", "made"]
    table = valid.rename(columns={"year": "made"})[["tailnum", "manufacturer", "model", "seats", "made"]]
    truth = WEEK.head(1_000).merge(table, how="left", on="tailnum")
    assert rows(parquet(spark, tmp_path / "table"), columns) == rows(truth, columns)
    busiest = truth["manufacturer"].value_counts()
    assert row_of(capsys.readouterr().out, busiest.index[0]).split()[2] == str(busiest.iloc[0])

    # The struck off planes' last values before the tombstones are in segments that were clean when those came.
    assert planes.await_compaction(bootstrap, planes_topic, 3_322 + 70) == 3_322 + 70
    assert planes_join.plane_table(spark, bootstrap, planes_topic).count() == len(valid)
    assert {key.decode() for key in last_values(bootstrap, planes_topic)} == set(valid["tailnum"])

    sold = str(WEEK["tailnum"].iloc[1_000:].dropna().loc[lambda s: s.isin(valid["tailnum"])].iloc[0])
    value = json.dumps({"tailnum": sold, "manufacturer": "KBROKER", "model": "1", "seats": 1})
    produce_records(bootstrap, planes_topic, [Record(sold.encode(), value.encode(), planes.REVISIONS[3])], total=1)
    flights.produce(bootstrap, topic, WEEK.iloc[1_000:1_500])
    planes_join.main(arguments)
    table.loc[table["tailnum"] == sold, ["manufacturer", "model", "seats", "made"]] = ["KBROKER", "1", 1, None]
    truth = pd.concat([truth, WEEK.iloc[1_000:1_500].merge(table, how="left", on="tailnum")])
    assert rows(parquet(spark, tmp_path / "table"), columns) == rows(truth, columns)


# --- incremental loads, killed half-way


@pytest.fixture
def script() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts Python with the given code and arguments; the JVM below it is ended with it."""
    with ExitStack() as started:
        yield lambda code, *arguments: started.enter_context(python("-c", code, *arguments))


STOP_IN_THE_THIRD_BATCH = """
import sys
from pyspark.sql.functions import udf
from pyspark.sql.types import BooleanType
from spark_examples import stream_available_now

reached = sys.argv.pop(1)
parsed = stream_available_now.parsed

@udf(BooleanType())
def passed(partition, offset):
    import pathlib, time
    if (partition, offset) == (0, 200):
        pathlib.Path(reached).touch()
        while True:
            time.sleep(1)
    return True

stream_available_now.parsed = lambda source: parsed(source).where(passed("partition", "offset"))
stream_available_now.main()
"""


def test_incremental_load_into_parquet_is_exact_after_a_kill(
    spark: Any, bootstrap: str, week: str, tmp_path: Path, script: Callable[..., subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    arguments = ["--bootstrap", bootstrap, "--topic", week, "--table", str(table), "--checkpoint", str(checkpoint),
                 "--max-offsets-per-trigger", "500"]  # fmt: skip
    reached = tmp_path / "reached"
    process = script(STOP_IN_THE_THIRD_BATCH, str(reached), *arguments)
    deadline = time.monotonic() + 2 * LONG  # with the start of Java and of Spark
    while not reached.exists():
        assert process.poll() is None and time.monotonic() < deadline, "the load did not get to its third batch"
        time.sleep(0.02)
    kill_with_java(process)
    committed = len(list((checkpoint / "commits").glob("[0-9]*")))
    assert committed == 2, "the load was not killed half-way"

    stream_available_now.main(arguments)
    got = parquet(spark, table)
    assert rows(got, KEYS[:3]) == rows(WEEK, KEYS[:3])
    assert not got.duplicated(["partition", "offset"]).any()
    assert f"{mean_delays(WEEK)[0][1]:,}" in row_of(capsys.readouterr().out, mean_delays(WEEK)[0][0])

    stream_available_now.main(arguments)
    assert capsys.readouterr().out.startswith("0 new rows in 0 micro-batches")


CRASH_BETWEEN_THE_COMMITS = """
import os, signal, sys
from spark_examples import upserts

apply_batch = upserts.apply_batch

def apply_and_die(connection, job, batch, days, planes):
    apply_batch(connection, job, batch, days, planes)
    if batch == 2:
        os.kill(os.getpid(), signal.SIGKILL)

upserts.apply_batch = apply_and_die
upserts.main(sys.argv[1:])
"""


def test_upserts_are_exact_after_a_kill_between_the_two_commits(
    spark: Any, bootstrap: str, week: str, tmp_path: Path, script: Callable[..., subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The worst moment: the database has batch 2, and Spark does not know. It gives the batch again."""
    database, checkpoint = tmp_path / "flights.sqlite", tmp_path / "checkpoint"
    arguments = ["--bootstrap", bootstrap, "--topic", week, "--database", str(database),
                 "--checkpoint", str(checkpoint), "--max-offsets-per-trigger", "1500"]  # fmt: skip
    process = script(CRASH_BETWEEN_THE_COMMITS, *arguments)
    java = wait_for_java(process)
    _, errors = process.communicate(timeout=2 * LONG)
    assert process.returncode == -signal.SIGKILL, errors.decode()[-2000:]
    # It ends by itself when its driver is gone; the checkpoint is its own until then.
    assert not psutil.wait_procs([java], LONG)[1], "the JVM goes on without its driver"
    assert applied(database) == [0, 1, 2]
    assert not (checkpoint / "commits" / "2").exists()

    again: list[int] = []
    upserts.upsert_new(spark, bootstrap, week, database=database, checkpoint=checkpoint,
                       max_offsets_per_trigger=1_500, applied=again.append)  # fmt: skip
    assert again[0] == 2, "Spark did not give the batch again, so this shows nothing"
    capsys.readouterr()
    upserts.main(arguments)
    assert capsys.readouterr().out.startswith("0 new flights")

    with closing(sqlite3.connect(database)) as connection:
        days = connection.execute("SELECT * FROM carrier_day ORDER BY carrier, day").fetchall()
        found = connection.execute("SELECT * FROM plane ORDER BY tailnum").fetchall()
    assert days == truth_by_day(WEEK)
    assert found == truth_by_plane(WEEK)


def wait_for_java(process: subprocess.Popen[bytes]) -> psutil.Process:
    """The JVM of the script's Spark; its driver starts it after a moment."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java":
                return child
        time.sleep(0.05)
    raise AssertionError("there is no JVM")


def applied(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [batch for (batch,) in connection.execute("SELECT batch FROM applied ORDER BY batch")]


def truth_by_day(frame: pd.DataFrame) -> list[tuple[str, str, int, int, int]]:
    day = pd.to_datetime(flights.scheduled_departure_ms(frame), unit="ms").dt.strftime("%Y-%m-%d")
    sums = frame.assign(on=day).groupby(["carrier", "on"])["dep_delay"].agg(["size", "count", "sum"]).reset_index()
    return [(c, d, int(n), int(k), int(total)) for c, d, n, k, total in sums.itertuples(index=False, name=None)]


def truth_by_plane(frame: pd.DataFrame) -> list[tuple[str, int, str, str, str]]:
    named = frame.assign(ms=flights.scheduled_departure_ms(frame), name=frame["carrier"] + frame["flight"].astype(str))
    last = named.dropna(subset=["tailnum"]).sort_values(["ms", "name"]).groupby("tailnum").last().reset_index()
    return list(last[["tailnum", "ms", "name", "origin", "dest"]].itertuples(index=False, name=None))


# --- bad records


def test_bad_records_go_to_the_dead_letter_topic_with_the_reason(
    spark: Any, bootstrap: str, new_name: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, good, dead = new_name(), new_name(), new_name()
    week = WEEK.head(1_000)
    flights.provide(bootstrap, topic, week)
    arguments = ["--bootstrap", bootstrap, "--topic", topic, "--good-topic", good, "--dead-letter-topic", dead,
                 "--checkpoint", str(tmp_path / "checkpoint")]  # fmt: skip
    dead_letters.main([*arguments, "--spoil", "60"])
    out = capsys.readouterr().out
    assert "1,060 new records" in out

    source = {(m.partition(), m.offset()): m for m in read_records(bootstrap, topic)}
    passed = list(read_records(bootstrap, good))
    assert sorted(content(m) for m in passed) == sorted((r.key, r.value) for r in flights.records(week))
    refused = list(read_records(bootstrap, dead))
    assert len(refused) == 60
    for message in refused:
        headers: dict[str, Any] = dict(message.headers() or [])
        was = source.pop((int(headers["dlq.source.partition"]), int(headers["dlq.source.offset"])))
        assert content(message) == content(was)
        assert headers["dlq.source.topic"] == topic.encode()
        assert headers["dlq.source.timestamp"] == str(was.timestamp()[1]).encode()
        # Written into the record when it was spoilt: the pipeline found out by itself.
        assert headers["dlq.reason"] == headers["spoilt"]
        assert row_of(out, headers["dlq.reason"].decode()).endswith(" 10")
    assert len(source) == 1_000, "a bad record is missing, or there twice"

    dead_letters.main(arguments)
    assert sum(1 for _ in read_records(bootstrap, dead)) == 60


def content(message: Any) -> tuple[bytes | None, bytes | None]:
    return message.key(), message.value()


# --- errors


def test_an_error_of_spark_is_one_line(spark: Any, bootstrap: str, week: str) -> None:
    with pytest.raises(SystemExit, match=r"^error: [^\n]*Specified: Set\(another-0\) Assigned:[^\n]*$"):
        batch_report.main(["--bootstrap", bootstrap, "--topic", week, "--starting-offsets", '{"another":{"0":1}}'])


def test_replay_into_a_topic_with_records_needs_a_word(bootstrap: str, new_name: Callable[[], str]) -> None:
    topic = new_name()
    create_topic(bootstrap, topic)
    arguments = ["--bootstrap", bootstrap, "--topic", topic, "--speed", "max", "--limit", "1"]
    replay.main(arguments)
    with pytest.raises(SystemExit, match=f"^error: {topic} has records already; --append adds to them$"):
        replay.main(arguments)
    replay.main([*arguments, "--append"])
    assert sum(1 for _ in read_records(bootstrap, topic)) == 2
