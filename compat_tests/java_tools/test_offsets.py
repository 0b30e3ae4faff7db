"""kafka-get-offsets and kafka-delete-records."""

from __future__ import annotations

import json

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison


@feature("kafka-get-offsets")
def test_get_offsets(compare: Comparison) -> None:
    compare.topic("offsets-filled", 1, lines=("a", "b", "c"))
    compare.topic("offsets-empty", 2)

    def offsets(*options: str, exit: int = 0) -> None:
        compare.server("kafka-get-offsets", *options, exit=exit)

    times = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered", "earliest-pending-upload")
    for time in (*times, "-1", "-2", "-3", "-4", "-5", "-6", "0", "1717000000000", "99999999999999"):
        offsets("--topic", "offsets-.*", "--time", time)
    offsets("--topic", "offsets-filled", "--time", "-7")
    offsets("--topic", "offsets-filled", "--time", "noon", exit=1)
    offsets("--topic", "offsets-.*")
    offsets("--topic", "offsets-.*", "--partitions", "1")
    offsets("--topic", "offsets-filled", "--partitions", "7", exit=1)
    offsets("--topic", "offsets-filled", "--partitions", "x", exit=1)
    offsets("--topic", "offsets-.*", "--exclude-internal-topics")
    offsets("--topic-partitions", "offsets-emp.*:1-,offsets-filled:0")
    offsets("--topic-partitions", "offsets-empty:-1")
    offsets("--topic-partitions", "offsets-empty:9", exit=1)
    offsets("--topic", "offsets-never", exit=1)
    offsets("--topic", "offsets-filled", "--topic-partitions", "offsets-empty:1", exit=1)


@feature("kafka-delete-records")
def test_delete_records(compare: Comparison) -> None:
    compare.topic("records-deleted", 1, lines=("a", "b", "c", "d"))
    compare.topic("records-compacted", 1, "--config", "cleanup.policy=compact")

    def delete(*partitions: tuple[str, int, int], version: int = 1, patience_ms: int = 60_000) -> None:
        entries = [{"topic": topic, "partition": number, "offset": offset} for topic, number, offset in partitions]
        file = compare.file("records.json", json.dumps({"version": version, "partitions": entries}))
        # The tool asks for what does not exist until its time is over.
        times = f"default.api.timeout.ms={patience_ms}\nrequest.timeout.ms={patience_ms}\n"
        patience = compare.file("patience.properties", times)
        timed = ((r"TimeoutException: .*", "TimeoutException"),)
        options = ("--offset-json-file", file, "--command-config", patience)
        compare.server("kafka-delete-records", *options, ordered=False, aside=timed)

    delete(("records-deleted", 0, 2))
    delete(("records-deleted", 0, 1))
    delete(("records-deleted", 0, 99))
    delete(("records-deleted", 0, -2))
    delete(("records-deleted", 7, 0), patience_ms=1000)
    delete(("records-never", 0, 0), patience_ms=1000)
    delete(("records-compacted", 0, 0))
    delete(("records-deleted", 0, 3), ("records-never", 0, 0), patience_ms=30_000)
    delete(("records-deleted", 0, -1))
    compare.server("kafka-get-offsets", "--topic", "records-deleted", "--time", "earliest")
    compare.server("kafka-get-offsets", "--topic", "records-deleted")
    compare.file("records.json", '{"version": 2, "partitions": []}')
    compare.server("kafka-delete-records", "--offset-json-file", "{dir}/records.json", exit=1)
    compare.file("records.json", "not json")
    compare.server("kafka-delete-records", "--offset-json-file", "{dir}/records.json", exit=1)
