"""A streaming query over a table and its topic, in a process of its own, which waits in the middle to be killed.

    python -m compat_tests.spark.killed_union HOST:PORT TOPIC TABLE DIRECTORY ID

Into Parquet files below DIRECTORY. The task that comes to the row of this ID makes a file DIRECTORY/reached-ID, and
goes no further; with -1 the query goes on to the end of the topic.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

PER_BATCH = "200"


def main(bootstrap: str, topic: str, table: str, directory: str, stops_at: str) -> None:
    from pyspark.sql.functions import col, udf
    from pyspark.sql.types import LongType

    from kbroker.tables import spark_union
    from kbroker.testing.spark import delta_session

    spark = delta_session("to be killed")
    place = Path(directory)
    reached = str(place / f"reached-{stops_at}")

    def stop_there(value):  # type: ignore[no-untyped-def]  # Spark's udf takes a hint for another kind of function
        if value == int(stops_at):
            Path(reached).touch()
            while True:
                time.sleep(1)
        return value

    checkpoint = place / "checkpoint"
    options = {"maxOffsetsPerTrigger": PER_BATCH}
    rows = spark_union(spark, table, topic, bootstrap, checkpoint=checkpoint, options=options)
    passed = rows.select("_partition", "_offset", udf(stop_there, LongType())(col("id")).alias("id"))
    writer = passed.writeStream.format("parquet").option("path", str(place / "rows"))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
