"""Reading topics with Spark, and running a streaming query to its end or until Ctrl-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_examples.console import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COORDINATES = ("topic", "partition", "offset", "timestamp")
"""Where a row was in its topic; these columns stay beside the value's own."""


def read_batch(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """The topic as Spark's source gives it: key, value, topic, partition, offset, timestamp."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def read_stream(
    spark: SparkSession, bootstrap: str, topic: str, *, max_offsets_per_trigger: int | None = None, **options: str
) -> DataFrame:
    """The topic from its beginning, as a stream; where there is a checkpoint, from where that ends."""
    options = {"startingOffsets": "earliest", **options}
    if max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def json_rows(rows: DataFrame, schema: str) -> DataFrame:
    """The values, JSON objects of the given schema, as columns, with the records' coordinates beside them."""
    from pyspark.sql import functions as F

    value = F.from_json(F.col("value").cast("string"), schema)
    return rows.select(*COORDINATES, value.alias("v")).select(*COORDINATES, "v.*")


@dataclass(frozen=True, slots=True)
class Summary:
    """The input of a query: rows of all sources, micro-batches with rows, rows that came after their watermark."""

    rows: int
    batches: int
    dropped: int


def run_query(
    writer: DataStreamWriter, *, what: str, expected: int = 0, follow: bool = False, every: str = "1 second"
) -> Summary:
    """Runs a query over what is there when it starts; with `follow`, on and on, until Ctrl-C or the query's failure.

    `what` and `expected` (rows) are for the progress line. Raises what the query failed with.
    """
    query = (writer.trigger(processingTime=every) if follow else writer.trigger(availableNow=True)).start()
    tally = Tally()
    progress = Progress(what, expected)
    try:
        while True:
            ended = query.awaitTermination(0.2)  # type: ignore[arg-type]  # any number of seconds
            progress.update(tally.read(query).rows)
            if ended:
                break
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        query.stop()
    summary = tally.read(query)
    progress.finish(summary.rows)
    return summary


class Tally:
    """Sums a query's reports. Spark keeps the last hundred, and gives a batch's report again while it is idle."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._dropped: dict[int, int] = {}

    def read(self, query: StreamingQuery) -> Summary:
        for report in query.recentProgress:
            batch: int = report["batchId"]
            states: list[dict[str, Any]] = report["stateOperators"]
            self._rows[batch] = max(self._rows.get(batch, 0), report["numInputRows"])
            late = sum(state.get("numRowsDroppedByWatermark", 0) for state in states)
            self._dropped[batch] = max(self._dropped.get(batch, 0), late)
        return Summary(
            sum(self._rows.values()), sum(1 for rows in self._rows.values() if rows), sum(self._dropped.values())
        )
