"""A topic that is followed into a Delta table: how far the table is behind, what it costs, the producer beside it.

In ``tables-follow`` records come at a rate; the lag is asked once a second: the records that have come, less the rows
of the table, over the rate. In ``tables-producer`` a follower with the priority that it has beside a node is at work in
some slices and at rest in others: pairs, with a control (`benchmarks.pairs`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Producer

from benchmarks import pairs
from benchmarks.clients import LoadError
from benchmarks.pairs import Slice, Turn
from benchmarks.servers import Kbroker, Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.tools.cli.child import module_command
from kbroker.tools.cli.tables_beside import NICE

RATE, SIZE, PARTITIONS = 50_000, 200, 4
BACKFILLED, BACKFILLED_SIZE = 10_000_000, 100
LONGEST_SECONDS = 300.0
_TICK = 0.02


def _values() -> list[bytes]:
    """Orders of 200 B, in JSON."""
    found = []
    for number in range(1000):
        order = {"id": number, "customer": f"customer-{number % 97}", "total": number / 4, "tags": ["a", "b"]}
        text = json.dumps(order | {"note": ""})
        found.append(json.dumps(order | {"note": "x" * (SIZE - len(text))}).encode())
    return found


class Table:
    """A table in a directory, and a process that follows a topic into it."""

    def __init__(self, process: psutil.Process, path: Path) -> None:
        self._process = process
        self._path = path
        self.peak_bytes = 0

    def rows(self) -> int:
        """The rows by the table's log; the follower's memory is looked at, too."""
        from deltalake import DeltaTable

        self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)
        return DeltaTable(str(self._path)).count() if DeltaTable.is_deltatable(str(self._path)) else 0

    def cpu_seconds(self) -> float:
        """The processor time of the follower."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def await_rows(self, count: int) -> None:
        """Wait until the table has so many rows. LoadError if that takes too long."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while (rows := self.rows()) < count:
            if time.monotonic() > deadline:
                raise LoadError(f"the table has {rows:,} rows of {count:,} after {LONGEST_SECONDS:.0f} s")
            time.sleep(0.5)


@contextmanager
def followed(server: Server, topic: str, *words: str, nice: int = 0) -> Iterator[Table]:
    """A follower of a topic, as a process, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="bench-table-") as directory:
        path = Path(directory) / "table"
        command = [*module_command("kbroker"), "table", "follow", topic, "--to", f"delta:{path}", "--quiet"]
        with subprocess.Popen([*command, "-b", server.bootstrap, *words], stdout=subprocess.DEVNULL) as process:
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
            try:
                yield Table(psutil.Process(process.pid), path)
            finally:
                process.terminate()
                process.wait(60)


@contextmanager
def _alone() -> Iterator[Kbroker]:
    server = Kbroker()
    server.start()
    try:
        server.await_port()
        yield server
    finally:
        server.stop()


def _send(server: Server, topic: str, seconds: int, each_second: Callable[[int], None]) -> int:
    """Send at the rate for so long; how many there were."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 10**6})
    values, sent = _values(), 0
    began = last = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        for _ in range(int((now - began) * RATE) - sent):
            producer.produce(topic, values[sent % len(values)], partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        if now >= last + 1:
            last = now
            each_second(sent)
        time.sleep(_TICK)
    if producer.flush(60):
        raise LoadError("not all records were sent")
    return sent


def table_follow(bench: Bench, server: Server) -> Figures:
    """JSON records of 200 B at 50,000 a second for a minute."""
    seconds, lags = bench.amount(60, 10), []
    with _alone() as node:
        topic = bench.new_topic(node, PARTITIONS)
        with followed(node, topic, "--value", "json") as table:
            _send(node, topic, 2, lambda sent: None)
            sent_before = 2 * RATE
            table.await_rows(int(0.9 * sent_before))
            before, used = table.rows(), table.cpu_seconds()
            began = time.monotonic()
            sent = _send(node, topic, seconds, lambda sent: lags.append((sent - (table.rows() - before)) / RATE))
            table.await_rows(before + sent)
            took, used = time.monotonic() - began, table.cpu_seconds() - used
    return {
        "records_per_s": sent / seconds,
        "longest_lag_s": max(lags),
        "end_lag_s": took - seconds,
        "cores": used / took,
        "records_per_cpu_s": sent / used,
        "peak_MB": table.peak_bytes / 1e6,
    }


def table_backfill(bench: Bench, server: Server) -> Figures:
    """10 million records of 100 B from a log directory, whose node is at rest."""
    count = bench.amount(BACKFILLED, BACKFILLED // 10)
    with _alone() as node, tempfile.TemporaryDirectory(prefix="bench-table-") as directory:
        topic = bench.new_topic(node, PARTITIONS)
        bench.load.run("produce", node.bootstrap, topic, count, BACKFILLED_SIZE, "acks=all")
        data = node.directory / "data"
        deadline = time.monotonic() + 60
        while _noted(data, topic) < count:
            if time.monotonic() > deadline:
                raise LoadError("the node has not noted what is committed")
            time.sleep(0.2)
        command = [*module_command("kbroker"), "table", "backfill", topic, "--from", str(data)]
        command += ["--to", f"delta:{directory}/table", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            watched, peak, used = psutil.Process(process.pid), 0, 0.0
            while process.poll() is None:
                peak = max(peak, watched.memory_info().rss)
                used = sum(watched.cpu_times()[:2])
                time.sleep(0.1)
            assert process.stdout is not None
            told = json.loads(process.stdout.read())
    if told["rows"] != count:
        raise LoadError(f"the table has {told['rows']:,} rows of {count:,}")
    return {"records_per_s": count / told["seconds"], "records_per_cpu_s": count / used, "peak_MB": peak / 1e6}


def _noted(data: Path, topic: str) -> int:
    try:
        lines = (data / "replication-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(int(line.split()[2]) for line in lines if line.startswith(f"{topic} "))


def table_producer(bench: Bench, server: Server) -> Figures:
    """Producing as fast as it goes to a topic that a table follows, and to one that none does."""
    count = bench.amount(2_000_000, 300_000)
    rounds: list[dict[Turn, Slice]] = []
    with _alone() as node:
        topics = {turn: bench.new_topic(node, PARTITIONS) for turn in Turn}
        sent = 0
        with followed(node, topics[Turn.WITH], nice=NICE) as table:
            for order in pairs.turns(bench.amount(12, 2)):
                slices: dict[Turn, Slice] = {}
                for turn in order:
                    used = node.cpu_seconds()
                    told = bench.load.run("produce", node.bootstrap, topics[turn], count, BACKFILLED_SIZE, "acks=all")
                    slices[turn] = Slice(told["records"], told["seconds"], node.cpu_seconds() - used)
                    if turn is Turn.WITH:
                        sent += count
                        table.await_rows(sent)
                rounds.append(slices)
    return {**pairs.compared(rounds), "records_per_s": statistics.median(each[Turn.WITH].rate for each in rounds)}


TABLE_WORKLOADS = (
    Workload("tables-follow", "a table follows 50,000 JSON records of 200 B a second", table_follow, "alone"),
    Workload("tables-backfill", "a table is filled from a log directory, records of 100 B", table_backfill, "alone"),
    Workload("tables-producer", "producing while a table follows, and while none does", table_producer, "alone"),
)
"""Apache Kafka has nothing of the kind."""
