"""Measures `kbroker table follow` into Iceberg beside Iceberg's own sink for Kafka Connect, on one topic of one broker.

    python -m benchmarks.table_rival [--records 1000000]

Each follows alone, one after the other, and commits each second. A line for each: the time from the start of its
process to the first rows, records per second of processor time once it runs, and the most memory that it held.
Needs the extras `bench` and `iceberg`, a JDK and Maven; the sink's jars are fetched on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import confluent_kafka
import psutil
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from compat_tests.works_with.connect import Worker
from compat_tests.works_with.judge import create_topics
from compat_tests.works_with.program import FOLDER, read_program
from compat_tests.works_with.running import Running, wait_until
from kbroker.testing import running_broker
from tests.patience import LONG

ROOT = Path(__file__).parent.parent
PARTITIONS = 4
FIRST = 1000
"""Records that are there before a follower starts."""
Started = tuple[psutil.Process, str, Callable[[], None]]
"""The process of a follower, its table, and what makes it begin."""


def send(bootstrap: str, first: int, count: int) -> None:
    """Send records of 200 B."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 20})
    for number in range(first, first + count):
        value = json.dumps({"id": number, "total": number / 2, "address": {"city": "Oslo"}, "tags": ["a", "b"]})
        line = value[:-1] + f', "note": "{"x" * (200 - len(value) - 12)}"}}'
        while True:
            try:
                producer.produce("orders", line, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(LONG) == 0


def rows_in(folder: Path, table: str) -> int:
    """The rows that the newest snapshot counts."""
    catalog = SqlCatalog("kbroker", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
    try:
        snapshot = catalog.load_table(table).current_snapshot()
    except NoSuchTableError:
        return 0
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)


@contextmanager
def iceberg_sink(bootstrap: str, folder: Path) -> Iterator[Started]:
    """Iceberg's sink in a worker of Kafka Connect."""
    program = read_program(FOLDER / "iceberg_sink")
    config = json.loads(program.file("sink.json").read_text()) | {"iceberg.control.commit.interval-ms": "1000"}
    with Worker(program, bootstrap, folder, "worker") as worker:

        def begin() -> None:
            worker.await_ready()
            worker.ask("PUT", "/connectors/iceberg-sink/config", config)

        yield psutil.Process(worker.running.process.pid), "lake.sink", begin


@contextmanager
def kbroker_table(bootstrap: str, folder: Path) -> Iterator[Started]:
    """`kbroker table follow`."""
    words = [
        sys.executable,
        "-m",
        "kbroker",
        "table",
        "follow",
        "orders",
        "-b",
        bootstrap,
        "--to",
        "iceberg:lake.kbroker",
    ]
    words += ["--catalog", f"sqlite:{folder / 'catalog.db'}", "--value", "json", "--every", "1s", "--quiet"]
    with Running(words, folder, "follower", {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}) as follower:
        yield psutil.Process(follower.process.pid), "lake.kbroker", lambda: None


def cpu_seconds(process: psutil.Process) -> float:
    """The processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(
    name: str,
    start: Callable[[str, Path], AbstractContextManager[Started]],
    bootstrap: str,
    folder: Path,
    known: int,
    count: int,
) -> None:
    """Print the figures of one follower, which finds `known` records and gets `count` more."""
    begin = time.monotonic()
    with start(bootstrap, folder) as (process, table, act):
        act()
        wait_until(lambda: rows_in(folder, table) > 0, "first rows", LONG)
        first_rows = time.monotonic() - begin
        wait_until(lambda: rows_in(folder, table) == known, "the records that were there", LONG)
        before = cpu_seconds(process)
        peak = 0
        send(bootstrap, known, count)

        def is_done() -> bool:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            return rows_in(folder, table) == known + count

        wait_until(is_done, "all records", LONG)
        used = cpu_seconds(process) - before
    print(
        f"{name:<28}{first_rows:6.1f} s to the first rows, {count / used:>10,.0f} records per second of processor time,"
        f" {peak >> 20:,} MB",
        flush=True,
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="sent while each follows (default 1,000,000)")
    count = parser.parse_args().records
    with tempfile.TemporaryDirectory() as directory, running_broker() as broker:
        bootstrap, folder = broker.bootstrap_servers, Path(directory)
        create_topics(bootstrap, {"orders": PARTITIONS, "control-iceberg": 1})
        send(bootstrap, 0, FIRST)
        measure("kbroker table follow", kbroker_table, bootstrap, folder, FIRST, count)
        measure("Kafka Connect, Iceberg's sink", iceberg_sink, bootstrap, folder, FIRST + count, count)


if __name__ == "__main__":
    main()
