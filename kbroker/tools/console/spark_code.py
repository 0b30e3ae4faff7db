"""The program by which Spark reads what the page shows. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping


def spark_code(
    bootstrap: str, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], *, partitions: int, secured: bool
) -> str:
    """PySpark for a batch of offsets ``begins`` to ``ends`` of a topic, and for a stream from ``begins`` on.

    Numbers are those that the page shows now. ``partitions``: so many the topic has; where some are not shown, the
    others are named, as Spark wants offsets for all that it reads. ``secured`` adds a line that says what has to be
    filled in.
    """
    chosen = f'"subscribe", {json.dumps(topic)}'
    if len(begins) < partitions:
        chosen = f'"assign", {_quoted(json.dumps({topic: sorted(begins)}))}'
    starting = json.dumps({topic: {str(partition): offset for partition, offset in sorted(begins.items())}})
    ending = json.dumps({topic: {str(partition): offset for partition, offset in sorted(ends.items())}})
    security = (
        "    # .option('kafka.security.protocol', ...), .option('kafka.sasl.jaas.config', ...): your own login\n"
        if secured
        else ""
    )
    columns = '"CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp"'
    return f"""\
# pip install pyspark==4.2.0
from pyspark.sql import SparkSession

spark = SparkSession.builder.config(
    "spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
).getOrCreate()

# The records that the page shows
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", {json.dumps(bootstrap)})
{security}    .option({chosen})
    .option("startingOffsets", {_quoted(starting)})
    .option("endingOffsets", {_quoted(ending)})
    .load()
    .selectExpr({columns})
)
records.show(truncate=False)

# The same topic as a stream, from the same place on
stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", {json.dumps(bootstrap)})
{security}    .option({chosen})
    .option("startingOffsets", {_quoted(starting)})
    .load()
    .selectExpr({columns})
)
stream.writeStream.format("console").option("truncate", "false").start().awaitTermination()
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
