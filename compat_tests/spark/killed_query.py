"""A streaming query in a process of its own, which stops in the middle of a batch and waits to be killed.

    python -m compat_tests.spark.killed_query HOST:PORT SOURCE TARGET DIRECTORY

From topic SOURCE into Parquet files below DIRECTORY, or, unless TARGET is "-", into that topic. The task that comes to
record ``STOPS_AT`` makes a file DIRECTORY/reached and goes no further; unless there is one already.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

STOPS_AT = "v150"
PER_BATCH = 60


def main(bootstrap: str, source: str, target: str, directory: str) -> None:
    from pyspark.sql.functions import col, udf
    from pyspark.sql.types import StringType

    from compat_tests.spark.records import read_stream, with_options
    from kbroker.testing.spark import spark_session

    spark = spark_session("to be killed")
    place = Path(directory)
    reached = str(place / "reached")
    stops = not Path(reached).exists()

    def stop_there(value):  # type: ignore[no-untyped-def]  # Spark's udf takes a hint for another kind of function
        if stops and value == STOPS_AT:
            Path(reached).touch()
            while True:
                time.sleep(1)
        return value

    passed = udf(stop_there, StringType())
    stream = read_stream(spark, bootstrap, subscribe=source, maxOffsetsPerTrigger=PER_BATCH)
    rows = stream.select("partition", "offset", passed(col("value").cast("string")).alias("value"))
    if target == "-":
        writer = rows.writeStream.format("parquet").option("path", str(place / "table"))
    else:
        writer = with_options(rows.select("value").writeStream.format("kafka"), bootstrap, {"topic": target})
    query = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
