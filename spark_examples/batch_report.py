"""A batch report from a topic: mean departure delay by carrier, between two offsets or two moments.

    python -m spark_examples.batch_report --from 2013-06-01 --to 2013-07-01
    python -m spark_examples.batch_report --starting-offsets '{"flights":{"0":100,"1":-2,"2":-2,"3":-2,"4":-2,"5":-2}}'

Bounds by time are turned by Spark into offsets (ListOffsets by timestamp) for each partition: those of the first
record at or after the moment. A partition's records lie in the order of production, which is not always that of time,
so such a bound alone would be wrong at the end: a record that is earlier than `--to` may lie behind one that is later.
The report therefore reads on for `--disorder` hours beyond the end, and filters by the records' own timestamps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing.spark import using_spark
from spark_examples import flights
from spark_examples.command import broker, moment_ms, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import SCHEMA, TOPIC, CarrierDelay
from spark_examples.plots import saved_figure
from spark_examples.streams import json_rows, read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR_MS = 3_600_000


def parsed(rows: DataFrame) -> DataFrame:
    """The flights in a source DataFrame, with the record's coordinates beside them."""
    return json_rows(rows, SCHEMA)


def carrier_delays(rows: DataFrame) -> list[CarrierDelay]:
    """The aggregate that is compared with pandas, computed by Spark, ordered by carrier."""
    from pyspark.sql import functions as F

    found = (
        rows.groupBy("carrier")
        .agg(F.count("*").alias("n"), F.count("dep_delay").alias("departed"), F.avg("dep_delay").alias("mean"))
        .orderBy("carrier")
        .collect()
    )
    return [CarrierDelay(row["carrier"], row["n"], row["departed"], row["mean"]) for row in found]


def bounds(arguments: argparse.Namespace) -> dict[str, str]:
    """The source's options for the first and last offset; none without bounds, which is earliest to latest."""
    options = {}
    if arguments.start is not None:
        options["startingTimestamp"] = str(arguments.start)
        # A partition without a record at or after the start would otherwise be an error.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if arguments.starting_offsets:
        options["startingOffsets"] = arguments.starting_offsets
    if arguments.end is not None:
        options["endingTimestamp"] = str(arguments.end + round(arguments.disorder * HOUR_MS))
    if arguments.ending_offsets:
        options["endingOffsets"] = arguments.ending_offsets
    return options


def within(rows: DataFrame, start_ms: int | None, end_ms: int | None) -> DataFrame:
    """The rows whose timestamp is at or after the start and before the end."""
    from pyspark.sql import functions as F

    if start_ms is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(start_ms)))
    if end_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(end_ms)))
    return rows


def spans(rows: DataFrame) -> list[tuple[int, int, int, int]]:
    """Partition, first and last offset that is in the report, and how many rows."""
    from pyspark.sql import functions as F

    found = (
        rows.groupBy("partition")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("n"))
        .orderBy("partition")
        .collect()
    )
    return [(row["partition"], row["first"], row["last"], row["n"]) for row in found]


def save_plot(delays: list[CarrierDelay], path: Path) -> None:
    """Mean delay by carrier, the late ones to the right."""
    ordered = sorted((d for d in delays if d.departed), key=lambda delay: delay.mean_delay_minutes)
    with saved_figure(path, title="Departure delay by carrier") as axes:
        axes.bar([d.carrier for d in ordered], [d.mean_delay_minutes for d in ordered], color="#9ecae1")
        axes.set_ylabel("mean delay, minutes")
        axes.set_xlabel("carrier")


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Mean departure delay by carrier, from a topic.")
    arguments_of.add_argument("--topic", default=TOPIC, help="a missing one is created, with all flights of 2013")
    first = arguments_of.add_mutually_exclusive_group()
    first.add_argument("--from", dest="start", type=moment_ms, help="first moment, e.g. 2013-06-01 (UTC)")
    first.add_argument("--starting-offsets", help='"earliest", or JSON by topic and partition (-2: earliest)')
    last = arguments_of.add_mutually_exclusive_group()
    last.add_argument("--to", dest="end", type=moment_ms, help="moment after the last, e.g. 2013-07-01 (UTC)")
    last.add_argument("--ending-offsets", help='"latest", or JSON by topic and partition (-1: latest)')
    arguments_of.add_argument(
        "--disorder", type=float, default=24, help="hours by which a record may lie behind a later one"
    )
    arguments_of.add_argument("--plot", type=Path, help="also save a plot")
    arguments = arguments_of.parse_args(argv)
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        with using_spark("batch report") as spark:
            source = read_batch(spark, bootstrap, arguments.topic, **bounds(arguments))
            rows = within(parsed(source), arguments.start, arguments.end).cache()
            try:
                delays = carrier_delays(rows)
                offsets = spans(rows)
            finally:
                rows.unpersist()
    names = flights.airline_names()
    shown = [
        (d.carrier, names.get(d.carrier, ""), d.flights, d.departed, _minutes(d.mean_delay_minutes)) for d in delays
    ]
    print(table(["carrier", "airline", "flights", "departed", "mean delay, min"], shown))
    print()
    print(table(["partition", "first offset", "last offset", "rows"], offsets))
    if arguments.plot:
        save_plot(delays, arguments.plot)
        print(f"plot: {arguments.plot}", file=sys.stderr)


def _minutes(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}"


if __name__ == "__main__":
    main()
