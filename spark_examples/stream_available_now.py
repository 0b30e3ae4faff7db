"""An incremental load: what is new in a topic since the last run, into Parquet.

    python -m spark_examples.stream_available_now --topic flights --table out/flights --checkpoint out/checkpoint

`availableNow` reads up to the offsets that are the latest at its start, in micro-batches of bounded size, then stops.
The checkpoint remembers the offsets, so a second run loads only what came since, and a run killed half-way is resumed
without loss or repetition.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spark_examples.batch_report import carrier_delays, parsed
from spark_examples.connector import ROOT, SetupError, spark_session
from spark_examples.console import Progress, table
from spark_examples.flights import TOPIC

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
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(max_offsets_per_trigger))
        .load()
    )
    query = (
        parsed(source)
        .writeStream.format("parquet")
        .option("path", str(into))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    progress = Progress(what, expected)
    rows_of: dict[int, int] = {}
    try:
        while True:
            ended = query.awaitTermination(0.2)  # type: ignore[arg-type]  # any number of seconds
            for report in query.recentProgress:
                rows_of[report["batchId"]] = report["numInputRows"]
            progress.update(sum(rows_of.values()))
            if ended:
                break
    finally:
        query.stop()
    progress.finish(sum(rows_of.values()))
    return sum(rows_of.values()), sum(1 for rows in rows_of.values() if rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Load what is new in a topic into Parquet.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--table", type=Path, default=ROOT / "out" / "flights", help="folder of the Parquet files")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "out" / "checkpoint")
    parser.add_argument("--max-offsets-per-trigger", type=int, default=100_000)
    arguments = parser.parse_args()
    try:
        spark = spark_session("incremental load")
    except SetupError as error:
        sys.exit(f"error: {error}")
    try:
        rows, batches = load_new(
            spark,
            arguments.bootstrap,
            arguments.topic,
            into=arguments.table,
            checkpoint=arguments.checkpoint,
            max_offsets_per_trigger=arguments.max_offsets_per_trigger,
        )
        print(f"{rows:,} new rows in {batches} micro-batches; the table now:")
        delays = carrier_delays(spark.read.parquet(str(arguments.table)))
        print(table(["carrier", "flights", "departed"], [(d.carrier, d.flights, d.departed) for d in delays]))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
