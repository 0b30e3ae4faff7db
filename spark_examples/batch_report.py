"""A batch report from a topic: mean departure delay by carrier, between two offsets or two moments.

    python -m spark_examples.batch_report --from 2013-06-01 --to 2013-07-01
    python -m spark_examples.batch_report --starting-offsets '{"flights":{"0":100,"1":-2}}'

Bounds by time are turned by Spark into offsets (ListOffsets by timestamp) for each partition: those of the first
record at or after the moment. A partition's records lie in the order of production, so such a bound is exact only
when that is also the order of time; the report therefore filters by the records' own timestamps too.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from typing import TYPE_CHECKING

from spark_examples.connector import SetupError, spark_session
from spark_examples.console import table
from spark_examples.flights import SCHEMA, TOPIC, CarrierDelay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_batch(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """The topic as Spark's source gives it: key, value, topic, partition, offset, timestamp."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def parsed(rows: DataFrame) -> DataFrame:
    """The flights in a source DataFrame, with the record's coordinates beside them."""
    from pyspark.sql import functions as F

    value = F.from_json(F.col("value").cast("string"), SCHEMA)
    return rows.select("topic", "partition", "offset", "timestamp", value.alias("f")).select(
        "topic", "partition", "offset", "timestamp", "f.*"
    )


def carrier_delays(flights: DataFrame) -> list[CarrierDelay]:
    """The aggregate that is compared with pandas, computed by Spark, ordered by carrier."""
    from pyspark.sql import functions as F

    rows = (
        flights.groupBy("carrier")
        .agg(F.count("*").alias("n"), F.count("dep_delay").alias("departed"), F.avg("dep_delay").alias("mean"))
        .orderBy("carrier")
        .collect()
    )
    return [CarrierDelay(row["carrier"], row["n"], row["departed"], row["mean"]) for row in rows]


def _moment_ms(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mean departure delay by carrier, from a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--from", dest="start", type=_moment_ms, help="first moment, e.g. 2013-06-01 (UTC)")
    parser.add_argument("--to", dest="end", type=_moment_ms, help="moment after the last, e.g. 2013-07-01 (UTC)")
    parser.add_argument("--starting-offsets", help='"earliest", or JSON by topic and partition')
    parser.add_argument("--ending-offsets", help='"latest", or JSON by topic and partition')
    arguments = parser.parse_args()
    options = {}
    if arguments.start is not None:
        options["startingTimestamp"] = str(arguments.start)
    if arguments.starting_offsets:
        options["startingOffsets"] = arguments.starting_offsets
    if arguments.ending_offsets:
        options["endingOffsets"] = arguments.ending_offsets
    try:
        spark = spark_session("batch report")
    except SetupError as error:
        sys.exit(f"error: {error}")
    from pyspark.sql import functions as F

    try:
        flights = parsed(read_batch(spark, arguments.bootstrap, arguments.topic, **options))
        if arguments.start is not None:
            flights = flights.where(F.col("timestamp") >= F.timestamp_millis(F.lit(arguments.start)))
        if arguments.end is not None:
            flights = flights.where(F.col("timestamp") < F.timestamp_millis(F.lit(arguments.end)))
        rows = [(d.carrier, d.flights, d.departed, round(d.mean_delay_minutes, 2)) for d in carrier_delays(flights)]
        print(table(["carrier", "flights", "departed", "mean delay, min"], rows))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
