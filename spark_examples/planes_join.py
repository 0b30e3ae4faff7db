"""A stream of flights joined with a table of planes that lives in a compacted topic.

    python -m spark_examples.planes_join

The table is the last value of each key, without the keys whose last value is null. It has to be computed so even
though the broker compacts the topic: compaction removes obsolete records some time, not at once, and never in the
segment that is being written. Spark plans the join anew for each micro-batch, and reads the table anew with it, so a
plane that is changed is seen from the next micro-batch on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing.spark import using_spark
from spark_examples import flights, planes
from spark_examples.batch_report import parsed
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.plots import saved_figure
from spark_examples.streams import Summary, read_batch, read_stream, run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plane_table(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The compacted topic as a table, one row for each plane."""
    from pyspark.sql import functions as F

    # A key is in one partition only, where offsets give the order of its values.
    newest = (
        read_batch(spark, bootstrap, topic)
        .groupBy("key")
        .agg(F.max_by("value", "offset").alias("value"))
        .where(F.col("value").isNotNull())
    )
    return newest.select(F.from_json(F.col("value").cast("string"), planes.SCHEMA).alias("p")).select("p.*")


def joined(departures: DataFrame, table_of_planes: DataFrame) -> DataFrame:
    """Flights, with what the register says of their planes, or nulls where it does not have them."""
    wanted = table_of_planes.select("tailnum", "manufacturer", "model", "seats", table_of_planes["year"].alias("made"))
    chosen = departures.select(
        "timestamp", "partition", "offset", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay"
    )
    return chosen.join(wanted, "tailnum", "left_outer")


def load_joined(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    planes_topic: str,
    *,
    into: Path,
    checkpoint: Path,
    max_offsets_per_trigger: int = 100_000,
    follow: bool = False,
) -> Summary:
    """Runs the join over the flights that are new, into Parquet."""
    source = read_stream(spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger)
    writer = (
        joined(parsed(source), plane_table(spark, bootstrap, planes_topic))
        .writeStream.format("parquet")
        .option("path", str(into))
        .option("checkpointLocation", str(checkpoint))
    )
    return run_query(writer, what="join", follow=follow)


def by_maker(rows: DataFrame) -> list[tuple[str, int, int, int, float | None]]:
    """Maker, planes, flights, seats on all flights and mean delay in minutes; the busiest first."""
    from pyspark.sql import functions as F

    found = (
        rows.groupBy(F.coalesce("manufacturer", F.lit("(not in the register)")).alias("maker"))
        .agg(
            F.count_distinct("tailnum").alias("planes"),
            F.count("*").alias("n"),
            F.coalesce(F.sum("seats"), F.lit(0)).alias("seats"),
            F.avg("dep_delay").alias("mean"),
        )
        .orderBy(F.desc("n"), "maker")
        .collect()
    )
    return [(row["maker"], row["planes"], row["n"], row["seats"], row["mean"]) for row in found]


def save_plot(makers: list[tuple[str, int, int, int, float | None]], path: Path) -> None:
    """Flights by maker, the ten busiest."""
    top = makers[:10][::-1]
    with saved_figure(path, title="Flights by maker of the plane") as axes:
        axes.barh([maker for maker, *_ in top], [n for _, _, n, _, _ in top], color="#9ecae1")
        axes.set_xlabel("flights")


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Join flights with the planes of a compacted topic, stream with table.")
    arguments_of.add_argument("--topic", default=flights.TOPIC, help="a missing one is created, with all flights")
    arguments_of.add_argument("--planes-topic", default=planes.TOPIC, help="a missing one is created, with all planes")
    arguments_of.add_argument("--into", type=Path, default=OUT / "planes-join", help="folder: table and checkpoint")
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, default=100_000, help="records in a micro-batch")
    arguments_of.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    arguments_of.add_argument("--plot", type=Path, help="also save a plot")
    arguments = arguments_of.parse_args(argv)
    into = arguments.into / "table"
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        planes.provide(bootstrap, arguments.planes_topic)
        with using_spark("planes join") as spark:
            summary = load_joined(
                spark,
                bootstrap,
                arguments.topic,
                arguments.planes_topic,
                into=into,
                checkpoint=arguments.into / "checkpoint",
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
                follow=arguments.follow,
            )
            makers = by_maker(spark.read.parquet(str(into)))
    print(f"{summary.rows:,} new flights in {summary.batches} micro-batches; the table now, by maker:")
    shown = [
        (maker, of_maker, n, seats, "-" if mean is None else f"{mean:.2f}")
        for maker, of_maker, n, seats, mean in makers[:12]
    ]
    print(table(["maker", "planes", "flights", "seats flown", "mean delay, min"], shown))
    if arguments.plot:
        save_plot(makers, arguments.plot)


if __name__ == "__main__":
    main()
