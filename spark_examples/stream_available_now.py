"""An incremental load: what is new in a topic since the last run, into Parquet.

    python -m spark_examples.stream_available_now --topic flights --table out/flights --checkpoint out/checkpoint

`availableNow` reads up to the offsets that are the latest at its start, in micro-batches of bounded size, then stops.
The checkpoint remembers the offsets, so a second run loads only what came since, and a run killed half-way is resumed
without loss or repetition: the files of a micro-batch that was not finished are in the folder, but not in the table's
log (`_spark_metadata`), so Spark does not read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.testing.spark import using_spark
from spark_examples import flights
from spark_examples.batch_report import carrier_delays, parsed
from spark_examples.command import OUT, broker, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import TOPIC
from spark_examples.streams import read_stream, run_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_new(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    into: Path,
    checkpoint: Path,
    max_offsets_per_trigger: int = 100_000,
    expected: int = 0,
    what: str = "stream",
) -> tuple[int, int]:
    """Runs the stream once to its end; returns (rows read, micro-batches).

    `expected` and `what` are for the progress line only.
    """
    source = read_stream(spark, bootstrap, topic, max_offsets_per_trigger=max_offsets_per_trigger)
    writer = (
        parsed(source)
        .writeStream.format("parquet")
        .option("path", str(into))
        .option("checkpointLocation", str(checkpoint))
    )
    summary = run_query(writer, what=what, expected=expected)
    return summary.rows, summary.batches


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Load what is new in a topic into Parquet.")
    arguments_of.add_argument("--topic", default=TOPIC, help="a missing one is created, with all flights of 2013")
    arguments_of.add_argument("--table", type=Path, default=OUT / "flights", help="folder of the Parquet files")
    arguments_of.add_argument(
        "--checkpoint", type=Path, default=OUT / "checkpoint", help="where Spark notes how far it is"
    )
    arguments_of.add_argument("--max-offsets-per-trigger", type=int, default=100_000, help="records in a micro-batch")
    arguments = arguments_of.parse_args(argv)
    with broker(arguments.bootstrap) as bootstrap:
        flights.provide(bootstrap, arguments.topic)
        with using_spark("incremental load") as spark:
            rows, batches = load_new(
                spark,
                bootstrap,
                arguments.topic,
                into=arguments.table,
                checkpoint=arguments.checkpoint,
                max_offsets_per_trigger=arguments.max_offsets_per_trigger,
            )
            print(f"{rows:,} new rows in {batches} micro-batches; the table now:")
            delays = carrier_delays(spark.read.parquet(str(arguments.table)))
    print(table(["carrier", "flights", "departed"], [(d.carrier, d.flights, d.departed) for d in delays]))


if __name__ == "__main__":
    main()
