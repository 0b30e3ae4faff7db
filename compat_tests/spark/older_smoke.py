"""Reads and writes with one release of PySpark, and prints the results as a JSON object. Runs in its own environment.

    python older_smoke.py HOST:PORT SOURCE TARGET TRANSACTIONAL JARS DIRECTORY

Needs nothing but PySpark. The topics are there: SOURCE as ``records.produce`` fills it, TARGET empty.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str, source: str, target: str, transactional: str, jars: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("smoke").master("local[2]").config("spark.jars", jars)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kafka = {"kafka.bootstrap.servers": address}

    def read(**options: str) -> Any:
        return spark.read.format("kafka").options(**kafka, **options).load()

    def numbers(frame: Any) -> list[int]:
        return sorted(int(bytes(row.value).decode()[1:]) for row in frame.select("value").collect())

    def copy(**options: str) -> None:
        stream = spark.readStream.format("kafka").options(**kafka, subscribe=source, **options).load()
        writer = stream.select("key", "value", "headers").writeStream.format("kafka").options(**kafka, topic=target)
        writer = writer.option("includeHeaders", "true").option("checkpointLocation", f"{directory}/checkpoint")
        assert writer.trigger(availableNow=True).start().awaitTermination(90)

    found: dict[str, Any] = {"version": spark.version}
    first = read(subscribe=source, includeHeaders="true").where("offset = 0 AND partition = 1").collect()[0]
    found["row"] = [
        bytes(first.key).decode(),
        bytes(first.value).decode(),
        first.topic,
        first.partition,
        first.timestampType,
        [[header.key, header.value and bytes(header.value).decode()] for header in first.headers],
    ]
    found["batch"] = numbers(read(subscribe=source, minPartitions="9"))
    bounds = {
        "startingOffsets": json.dumps({source: {"0": 90, "1": -2, "2": 100}}),
        "endingOffsets": json.dumps({source: {"0": -1, "1": 5, "2": -1}}),
    }
    found["by offsets"] = numbers(read(subscribe=source, **bounds))
    times = {"startingTimestamp": "1356998430000", "endingTimestamp": "1356998460000"}
    found["by admin"] = numbers(read(subscribe=source, **times))
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    found["by consumer"] = numbers(read(subscribe=source, **times))
    spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")
    found["assigned"] = numbers(read(assign=json.dumps({source: [0, 2]})))
    found["pattern"] = numbers(read(subscribePattern=source[:-1] + f"[{source[-1]}]"))
    found["committed"] = numbers(read(subscribe=transactional, **{"kafka.isolation.level": "read_committed"}))
    for _ in range(2):
        copy(startingOffsets="earliest", maxOffsetsPerTrigger="70", includeHeaders="true")
        found.setdefault("copied", []).append(numbers(read(subscribe=target)))
    spark.range(300, 310).selectExpr("concat('v', id) AS value").write.format("kafka").options(
        **kafka, topic=target
    ).save()
    found["written"] = numbers(read(subscribe=target))
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
