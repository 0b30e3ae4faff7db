"""`python -m benchmarks.for_tests`: what tests can start in a broker's place, side by side.

    python -m benchmarks.for_tests                           twenty minutes; writes docs/comparison.md
    python -m benchmarks.for_tests --starts 50 --only kbroker --only kfake
                                                             a short look; writes nothing

kbroker with its control, Apache Kafka, franz-go's kfake and librdkafka's mock cluster: how long each takes until a
client has its first answer (ApiVersions), many times in a row and each on an empty directory; its memory; librdkafka's
records and small requests; and how many of the protocol's APIs it tells of. kfake needs Go.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from benchmarks.__main__ import machine
from benchmarks.clients import JavaPrograms, Load, LoadError
from benchmarks.raw import api_versions_frame
from benchmarks.servers import ROOT, Apache, Kbroker, Server, ServerError, commit
from benchmarks.workloads import Bench, send_small_requests, stored_records
from kbroker.testing import running_broker

LIMIT_SECONDS = 60.0
"""A start that takes longer has failed, as it would for a test that waits for a container."""
RECORDS = 500_000
"""Of 1,000 bytes."""
PARTITIONS = 4
"""A mock cluster makes topics by itself, with four partitions."""
STARTS = {"kbroker": 1_000, "apache": 20, "mock": 100, "kfake": 1_000}
"""Apache Kafka's take seconds each."""


class ControlledKbroker(Kbroker):
    """kbroker as tests in other languages start it."""

    options = ("--control", "0")


class Announcing(Server):
    """A program that prints one line: ``ready:``, its address, and the seconds that it took inside of the process."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._command = command
        self.inside_seconds = 0.0

    def start(self) -> None:
        self.launched_at = time.monotonic()
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def await_port(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = re.match(r"ready: \S+:(\d+) (\S+)", line)
        if found is None:
            raise ServerError(f"{self.name} did not start: {line}{self.log_tail()}")
        self.port, self.inside_seconds = int(found[1]), float(found[2])


class Mock(Announcing):
    """librdkafka's mock cluster, as it is in a client's own process."""

    name = "mock"

    def __init__(self) -> None:
        super().__init__([sys.executable, "-m", "benchmarks.for_tests", "--be-the-mock"])


def be_the_mock() -> None:
    """Be a client with a mock cluster, until a signal ends it."""
    from confluent_kafka import Producer

    began = time.monotonic()
    client = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored", "log_level": 3})
    broker = next(iter(client.list_topics(timeout=LIMIT_SECONDS).brokers.values()))
    print(f"ready: {broker.host}:{broker.port} {time.monotonic() - began}", flush=True)
    signal.pause()


def kfake_of(folder: Path) -> Callable[[], Server]:
    """Build kfake's program. ServerError if that fails."""
    program = folder / "kfake"
    source = ROOT / "benchmarks" / "kfake"
    done = subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, capture_output=True, text=True)
    if done.returncode:
        raise ServerError(f"kfake cannot be built:\n{done.stderr}")

    class Kfake(Announcing):
        name = "kfake"

        def __init__(self) -> None:
            super().__init__([str(program)])

    return Kfake


@dataclass(slots=True)
class Told:
    """The figures of one kind of broker, in the words of the page."""

    starts: str = ""
    median_s: str = ""
    p99_s: str = ""
    inside_s: str = "-"
    memory_MB: str = ""
    MB_per_s: str = ""
    cpu_s_per_GB: str = ""
    kept: str = ""
    loaded_MB: str = ""
    requests_per_s: str = ""
    apis: str = ""


ROWS = {
    "starts": "processes started one after the other",
    "median_s": "a process, to the first answer: median",
    "p99_s": "a process, to the first answer: 99th percentile",
    "inside_s": "in a process that runs already, to its address: median",
    "memory_MB": "memory of the process then",
    "MB_per_s": f"librdkafka, {RECORDS:,} records of 1 KB to {PARTITIONS} partitions, acks=all",
    "cpu_s_per_GB": "its processor time for that",
    "kept": "records that are there afterwards",
    "loaded_MB": "memory afterwards",
    "requests_per_s": "100 connections, small synchronous produce",
    "apis": "APIs that it tells of, and those of them in the newest version of all four",
}


@contextlib.contextmanager
def running(kind: Callable[[], Server]) -> Iterator[tuple[Server, float]]:
    """Give a broker that has answered a client, and how many seconds that took. ServerError if it does not."""
    server = kind()
    try:
        server.start()
        server.await_port()
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((server.host, server.port), timeout=LIMIT_SECONDS) as connection,
            ):
                connection.sendall(api_versions_frame())
                if len(connection.recv(4)) == 4:
                    break
            if not server.is_alive() or time.monotonic() > server.launched_at + LIMIT_SECONDS:
                raise ServerError(f"{server.name} does not answer:\n{server.log_tail()}")
            time.sleep(0.001)
        yield server, time.monotonic() - server.launched_at
    finally:
        server.stop()


def started(kind: Callable[[], Server], count: int, told: Told) -> None:
    """Start a kind of broker so many times in a row."""
    seconds, inside, sizes, failures = [], [], [], 0
    for _ in range(count):
        try:
            with running(kind) as (server, took):
                seconds.append(took)
                sizes.append(server.resident_bytes() / 1e6)
                if isinstance(server, Announcing):
                    inside.append(server.inside_seconds)
        except ServerError as error:
            failures += 1
            print(error, file=sys.stderr)
    ordered = sorted(seconds)
    told.starts = f"{count:,}, {failures or 'none'} failed"
    told.median_s = f"{statistics.median(ordered):.3f} s"
    told.p99_s = f"{ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:.3f} s"
    told.memory_MB = f"{statistics.median(sizes):.0f} MB"
    if inside:
        told.inside_s = f"{statistics.median(inside) * 1000:.2f} ms"


def started_here(count: int) -> str:
    """Start kbroker in this process so many times; the first one, which imports it, does not count."""
    seconds = []
    for _ in range(count + 1):
        began = time.monotonic()
        with running_broker():
            seconds.append(time.monotonic() - began)
    return f"{statistics.median(seconds[1:]) * 1000:.0f} ms"


def new_topic(bench: Bench, server: Server) -> str:
    """Create a topic; on a mock cluster, which knows no CreateTopics, by asking for it."""
    if server.name != "mock":
        return bench.new_topic(server, PARTITIONS)
    topic = f"asked-{time.monotonic_ns()}"
    AdminClient({"bootstrap.servers": server.bootstrap, "allow.auto.create.topics": True}).list_topics(
        topic, timeout=10
    )
    return topic


def loaded(kind: Callable[[], Server], bench: Bench, told: Told) -> dict[int, int]:
    """Send records and small requests to a broker. Returns its ``apis``."""
    with running(kind) as (server, _):
        topic = new_topic(bench, server)
        before = server.cpu_seconds()
        result = bench.load.run("produce", server.bootstrap, topic, RECORDS, 1_000, "acks=all")
        told.cpu_s_per_GB = f"{(server.cpu_seconds() - before) / (RECORDS * 1_000 / 1e9):.2f} s/GB"
        told.MB_per_s = f"{RECORDS * 1_000 / result['seconds'] / 1e6:,.0f} MB/s"
        told.kept = f"{stored_records(server, topic, PARTITIONS):,}"
        told.loaded_MB = f"{server.resident_bytes() / 1e6:,.0f} MB"
        figures, _ = send_small_requests(bench, server, new_topic(bench, server), 5, PARTITIONS)
        told.requests_per_s = f"{figures['requests_per_s']:,.0f} a second"
        return apis(server)


def apis(server: Server) -> dict[int, int]:
    """Returns the newest version of each API that a broker tells of (ApiVersions v0: no tags, so fixed widths)."""
    with socket.create_connection((server.host, server.port), timeout=LIMIT_SECONDS) as connection:
        connection.sendall(api_versions_frame())
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _, _, count = struct.unpack_from(">ihi", body := answer.read(size))
    return {key: newest for key, _, newest in struct.iter_unpack(">hhh", body[10 : 10 + 6 * count])}


def document(columns: dict[str, Told], facts: str) -> str:
    """Returns docs/comparison.md."""
    head = ROOT / "benchmarks" / "comparison.md.in"
    names = {
        "kbroker": "kbroker",
        "apache": "Apache Kafka 4.4.0",
        "kfake": "kfake",
        "mock": "librdkafka's mock cluster",
    }
    table = ["| | " + " | ".join(names[each] for each in columns) + " |", "|---|" + "---:|" * len(columns)]
    for field, title in ROWS.items():
        table.append(f"| {title} | " + " | ".join(getattr(told, field) for told in columns.values()) + " |")
    return head.read_text().replace("<table>", "\n".join(table)).replace("<facts>", facts)


def main() -> None:
    """Measure all that are wanted, show them, and write the page if nothing was left out."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.for_tests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    kinds: dict[str, Callable[[], Server]] = {"kbroker": ControlledKbroker, "apache": Apache, "mock": Mock}
    parser.add_argument("--only", action="append", choices=STARTS, help="one of them; repeatable")
    parser.add_argument("--starts", type=int, help="in a row, of each (1000; Apache Kafka 20, mock 100)")
    parser.add_argument("--be-the-mock", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be_the_mock:
        be_the_mock()
        return
    found = machine()
    busy = f"{found['busy_percent']:.1f} % busy before"
    facts = f"Commit `{commit()}`, {found['processors']} processors ({found['model']}), {busy}."
    columns: dict[str, Told] = {}
    known: dict[str, dict[int, int]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-for-tests-") as folder:
        scratch = Path(folder)
        if not arguments.only or "kfake" in arguments.only:
            if shutil.which("go") is None:
                sys.exit("error: kfake needs Go, which is not on the PATH")
            kinds["kfake"] = kfake_of(scratch)
        bench = Bench(scratch, Load(scratch), JavaPrograms(scratch), quick=False)
        for name, kind in kinds.items():
            if arguments.only and name not in arguments.only:
                continue
            told = columns[name] = Told()
            try:
                started(kind, arguments.starts or STARTS[name], told)
                known[name] = loaded(kind, bench, told)
                if name == "kbroker":
                    told.inside_s = started_here(20)
            except (LoadError, ServerError) as error:
                sys.exit(f"error: {name}: {error}")
            print(name, *(f"  {title}: {getattr(told, field)}" for field, title in ROWS.items()), sep="\n", flush=True)
    newest = {key: max(each.get(key, -1) for each in known.values()) for key in set().union(*known.values())}
    for name, versions in known.items():
        columns[name].apis = f"{len(versions)}, {sum(newest[key] == version for key, version in versions.items())}"
        print(f"{name}: {ROWS['apis']}: {columns[name].apis}")
    if not (arguments.only or arguments.starts):
        (ROOT / "docs" / "comparison.md").write_text(document(columns, facts))


if __name__ == "__main__":
    main()
