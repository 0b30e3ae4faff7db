"""Delay by carrier and origin in windows of event time, written back into a topic as it changes.

    python -m spark_examples.delays                              # what is there now
    python -m spark_examples.delays --follow --bootstrap ...     # and what comes, until Ctrl-C

While it runs, `python -m spark_examples.watch` shows the results, and `replay` lets the flights come.

The query counts by window, carrier and origin. In update mode each micro-batch writes the rows that changed, each a
record whose key says which row it is, so the last record of a key is the row's present state. The result topic is
compacted: that last record is what the broker keeps. The watermark says how late a flight may come; what is older is
dropped, and its state can be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.testing.spark import using_spark
from spark_examples import flights
from spark_examples.batch_report import parsed
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import TOPIC, scheduled_departure_ms
from spark_examples.streams import read_stream, run_query
from spark_examples.topics import create_topic, last_values, topic_exists

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RESULT_TOPIC = "flight-delays"
WINDOW = "1 day"
WATERMARK = "1 day"
"""The latest flight of 2013 left 21 hours and 41 minutes late, so that with a day nothing is dropped."""


@dataclass(frozen=True, slots=True)
class WindowDelay:
    """The present state of one row of the result; delays in minutes, early departures are negative."""

    window_start: str
    carrier: str
    origin: str
    flights: int
    departed: int
    delay_minutes: int
    mean_delay_minutes: float | None

    @staticmethod
    def of(value: bytes) -> WindowDelay:
        """From a record's value. Raises ValueError or KeyError for something else."""
        v = json.loads(value)
        return WindowDelay(
            v["window_start"],
            v["carrier"],
            v["origin"],
            v["flights"],
            v["departed"],
            v["delay_minutes"],
            v.get("mean_delay_minutes"),
        )


def windowed(rows: DataFrame, *, window: str = WINDOW, watermark: str = WATERMARK) -> DataFrame:
    """Flights to rows of key and value, as the Kafka sink takes them."""
    from pyspark.sql import functions as F

    counted = (
        rows.withWatermark("timestamp", watermark)
        .groupBy(F.window("timestamp", window), "carrier", "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
            F.avg("dep_delay").alias("mean_delay_minutes"),
        )
        .withColumn("window_start", F.date_format("window.start", "yyyy-MM-dd'T'HH:mm'Z'"))
    )
    names = ("window_start", "carrier", "origin", "flights", "departed", "delay_minutes", "mean_delay_minutes")
    return counted.select(
        F.concat_ws("|", "window_start", "carrier", "origin").alias("key"), F.to_json(F.struct(*names)).alias("value")
    )


def delay_writer(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    result_topic: str,
    *,
    checkpoint: Path,
    window: str = WINDOW,
    watermark: str = WATERMARK,
    max_offsets_per_trigger: int | None = None,
) -> DataStreamWriter:
    """The whole query, from topic to topic; what is left to choose is its trigger."""
    source = read_stream(spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger)
    return (
        windowed(parsed(source), window=window, watermark=watermark)
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", result_topic)
        .option("checkpointLocation", str(checkpoint))
    )


def create_result_topic(bootstrap: str, topic: str) -> None:
    """A compacted topic, unless it is there already."""
    if not topic_exists(bootstrap, topic):
        create_topic(bootstrap, topic, 3, {"cleanup.policy": "compact"})


def delays_of(frame: Any, *, window_ms: int = 86_400_000) -> list[WindowDelay]:
    """The truth, computed by pandas, in the same order as `read_delays` gives."""
    import pandas as pd

    stamps = scheduled_departure_ms(frame)
    starts = pd.to_datetime(stamps - stamps % window_ms, unit="ms").dt.strftime("%Y-%m-%dT%H:%MZ")
    grouped = frame.assign(window_start=starts).groupby(["window_start", "carrier", "origin"])["dep_delay"]
    sums = grouped.agg(["size", "count", "sum", "mean"]).reset_index()
    return [
        WindowDelay(start, carrier, origin, int(n), int(k), int(total), None if pd.isna(mean) else float(mean))
        for start, carrier, origin, n, k, total, mean in sums.itertuples(index=False, name=None)
    ]


def read_delays(bootstrap: str, topic: str) -> list[WindowDelay]:
    """The result topic as a table, by window, carrier and origin."""
    return sorted_delays(WindowDelay.of(value) for value in last_values(bootstrap, topic).values())


def sorted_delays(rows: Iterable[WindowDelay]) -> list[WindowDelay]:
    """The rows by window, carrier and origin."""
    return sorted(rows, key=lambda row: (row.window_start, row.carrier, row.origin))


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Delay by window, carrier and origin, from topic to topic.")
    arguments_of.add_argument("--topic", default=TOPIC, help="a missing one is created, with all flights of 2013")
    arguments_of.add_argument("--result-topic", default=RESULT_TOPIC, help="created compacted, unless it exists")
    arguments_of.add_argument(
        "--checkpoint", type=Path, default=OUT / "delays-checkpoint", help="where Spark notes how far it is"
    )
    arguments_of.add_argument("--window", default=WINDOW, help="length of a window")
    arguments_of.add_argument("--watermark", default=WATERMARK, help="how late a flight may come")
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, help="records in a micro-batch (all there are)")
    arguments_of.add_argument(
        "--follow", action="store_true", help="go on with what comes, until Ctrl-C; a missing topic stays empty"
    )
    arguments = arguments_of.parse_args(argv)
    with broker(arguments.bootstrap) as bootstrap:
        if not arguments.follow:
            flights.provide(bootstrap, arguments.topic)
        elif not topic_exists(bootstrap, arguments.topic):
            create_topic(bootstrap, arguments.topic)  # for `replay` to fill
        create_result_topic(bootstrap, arguments.result_topic)
        with using_spark("delays") as spark:
            writer = delay_writer(
                spark,
                bootstrap,
                arguments.topic,
                arguments.result_topic,
                checkpoint=arguments.checkpoint,
                window=arguments.window,
                watermark=arguments.watermark,
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
            )
            summary = run_query(writer, what="delays", follow=arguments.follow)
        rows = read_delays(bootstrap, arguments.result_topic)
    print(
        f"{summary.rows:,} flights in {summary.batches} micro-batches, {summary.dropped:,} rows dropped as too late; "
        f"{len(rows):,} rows in {arguments.result_topic}, the last of them:"
    )
    shown = [
        (row.window_start, row.carrier, row.origin, row.flights, row.departed, row.delay_minutes) for row in rows[-12:]
    ]
    print(table(["window", "carrier", "origin", "flights", "departed", "delay, min"], shown))


if __name__ == "__main__":
    main()
