"""Departures joined with the weather of their hour: two streams, both with watermarks.

    python -m spark_examples.weather_join
    python -m spark_examples.weather_join --how left --follow --bootstrap 127.0.0.1:9092

Either stream may be ahead of the other. Spark keeps the rows of both until their partners can no longer come, that is
until the watermark has passed their hour; the watermark is that of the stream that is behind. With `--how left`, a
flight without weather is written when the watermark says that none will come. Two things matter in the condition:
it names the time on both sides, or else the state would grow for ever; and it does so by equality (the flight's hour
is the weather's), not only by a range, or else every flight would be compared with every hour of its airport.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing.spark import using_spark
from spark_examples import flights, weather
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.plots import saved_figure
from spark_examples.streams import Summary, json_rows, read_stream, run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WATERMARK = "2 days"
"""A topic's partitions are a day out of order at most; what a micro-batch reads of them is a little more."""

MEASURES = ("temp", "wind_speed", "precip", "visib")


def joined(departures: DataFrame, hours: DataFrame, *, how: str = "inner", watermark: str = WATERMARK) -> DataFrame:
    """Flights and weather as parsed by `json_rows`, to flights with the measures of their hour."""
    from pyspark.sql import functions as F

    left = departures.select(
        "timestamp", "partition", "offset", "carrier", "flight", "origin", "dest", "dep_delay"
    ).withWatermark("timestamp", watermark)
    right = hours.select(F.col("origin").alias("airport"), F.col("timestamp").alias("hour"), *MEASURES).withWatermark(
        "hour", watermark
    )
    condition = F.expr("origin = airport AND date_trunc('HOUR', timestamp) = hour")
    return left.join(right, condition, "inner" if how == "inner" else "left_outer").drop("airport")


def load_joined(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    weather_topic: str,
    *,
    into: Path,
    checkpoint: Path,
    how: str = "inner",
    watermark: str = WATERMARK,
    max_offsets_per_trigger: int = 100_000,
    follow: bool = False,
) -> Summary:
    """Runs the join over what is new in both topics, into Parquet."""
    departures = read_stream(spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger)
    hours = read_stream(spark, bootstrap, weather_topic, max_offsets_per_trigger=max_offsets_per_trigger)
    writer = (
        joined(json_rows(departures, flights.SCHEMA), json_rows(hours, weather.SCHEMA), how=how, watermark=watermark)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(into))
        .option("checkpointLocation", str(checkpoint))
    )
    return run_query(writer, what="join", follow=follow)


def by_weather(rows: DataFrame) -> list[tuple[str, int, int, float | None]]:
    """Kind of weather, flights, departed and mean delay in minutes; the worst first."""
    from pyspark.sql import functions as F

    kind = (
        F.when(F.col("hour").isNull(), "not known")
        .when(F.col("visib") < 1, "fog: visibility below a mile")
        .when(F.col("precip") > 0.1, "heavy rain or snow")
        .when(F.col("precip") > 0, "rain or snow")
        .when(F.col("wind_speed") >= 20, "wind of 20 mph and more")
        .otherwise("fair")
    )
    found = (
        rows.groupBy(kind.alias("weather"))
        .agg(F.count("*").alias("n"), F.count("dep_delay").alias("departed"), F.avg("dep_delay").alias("mean"))
        .orderBy(F.desc("mean"))
        .collect()
    )
    return [(row["weather"], row["n"], row["departed"], row["mean"]) for row in found]


def save_plot(kinds: list[tuple[str, int, int, float | None]], path: Path) -> None:
    """Mean delay by kind of weather."""
    with saved_figure(path, title="Departure delay and the weather of the hour") as axes:
        axes.barh([kind for kind, *_ in kinds][::-1], [mean or 0 for *_, mean in kinds][::-1], color="#9ecae1")
        axes.set_xlabel("mean delay, minutes")


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Join departures with the weather of their hour, stream with stream.")
    arguments_of.add_argument("--topic", default=flights.TOPIC, help="a missing one is created, with all flights")
    arguments_of.add_argument("--weather-topic", default=weather.TOPIC, help="a missing one is created, with all hours")
    arguments_of.add_argument("--how", choices=("inner", "left"), default="inner", help="left: also without weather")
    arguments_of.add_argument("--watermark", default=WATERMARK, help="how late a record may come")
    arguments_of.add_argument("--into", type=Path, default=OUT / "weather-join", help="folder: table and checkpoint")
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, default=100_000, help="records in a micro-batch")
    arguments_of.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    arguments_of.add_argument("--plot", type=Path, help="also save a plot")
    arguments = arguments_of.parse_args(argv)
    into = arguments.into / f"table-{arguments.how}"
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        weather.provide(bootstrap, arguments.weather_topic)
        with using_spark("weather join") as spark:
            summary = load_joined(
                spark,
                bootstrap,
                arguments.topic,
                arguments.weather_topic,
                into=into,
                checkpoint=arguments.into / f"checkpoint-{arguments.how}",
                how=arguments.how,
                watermark=arguments.watermark,
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
                follow=arguments.follow,
            )
            kinds = by_weather(spark.read.parquet(str(into)))
    print(
        f"{summary.rows:,} records of both topics in {summary.batches} micro-batches, "
        f"{summary.dropped:,} dropped as too late; the table now:"
    )
    shown = [(kind, n, departed, "-" if mean is None else f"{mean:.2f}") for kind, n, departed, mean in kinds]
    print(table(["weather", "flights", "departed", "mean delay, min"], shown))
    if arguments.plot:
        save_plot(kinds, arguments.plot)


if __name__ == "__main__":
    main()
