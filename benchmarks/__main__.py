"""`python -m benchmarks`: kbroker and Apache Kafka 4.4.0 in turn, the same clients, one table of ratios.

    python -m benchmarks --quick             a few minutes, the figures that have a target
    python -m benchmarks --all               all that there is, five rounds, and docs/benchmarks.md of it: hours
    python -m benchmarks --render FILE...    docs/benchmarks.md of several runs: rounds of one commit add up
    python -m benchmarks                     everything that one broker serves, two rounds: 40 minutes
    python -m benchmarks --only 'produce-*'  some of it (--list names them)
    python -m benchmarks --only 'cluster-*'  clusters of three nodes, which only run when asked for
    python -m benchmarks --only 'tls-*' --only acls
                                             TLS, SCRAM, handshakes and ACLs, which only run when asked for
    python -m benchmarks --only explorer-watched
                             a node that the console's explorer watches, beside one without an explorer
    python -m benchmarks --only explorer-same-node
                             one node under a steady load, watched and unwatched in turn: five minutes
    python -m benchmarks --only 'metrics-*'
                             a node with its page of metrics, which is scraped, beside two without: ten minutes
    python -m benchmarks --only spark-table-read
                             Spark asks a topic, and the table of the topic: five minutes
    python -m benchmarks --only 'tables-*'
                             a table that follows a topic, one that is filled, the producer beside one: fifteen minutes
    python -m benchmarks --only 'capacity-*'
                             what `kbroker capacity` reckons beside what is measured: two minutes
    python -m benchmarks --only 'metadata-*'
                             the metadata of 10,000, 100,000 and 1,000,000 partitions on 100 brokers, in this process:
                             three minutes
    python -m benchmarks --only 'cluster-partitions-*'
                             6,000 partitions on three nodes of either broker, and 100,000 on kbroker's: five minutes
    python -m benchmarks --before ../earlier --rounds 9
                                             this checkout and an earlier one, in place of Apache Kafka
    python -m benchmarks --with metrics --rounds 9 --only 'produce-*' --only requests
                             a node with its page of metrics, and one without, in place of Apache Kafka
    python -m benchmarks --with explorer --rounds 9 --only requests
                             a node that `kbroker watch` looks at, and one without an explorer
    python -m benchmarks --with cores --rounds 3 --only 'produce-*' --only 'consume-*'
                             a node for each of two cores, and one node, in place of Apache Kafka

Needs Java 17 and Maven for Apache Kafka and the Java clients, and a C compiler for figures that the client does
not bound. Give it a quiet machine: both brokers and the load share its processors.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import report
from benchmarks.acl_workloads import ACL_WORKLOADS
from benchmarks.beside_workloads import BESIDE_WORKLOADS
from benchmarks.capacity_workloads import CAPACITY_WORKLOADS
from benchmarks.clients import JavaPrograms, Load, LoadError
from benchmarks.cluster_servers import CLUSTERS, earlier_cluster
from benchmarks.cluster_workloads import CLUSTER_WARM_UP, CLUSTER_WORKLOADS
from benchmarks.cores_workloads import CORES_WORKLOADS
from benchmarks.explorer_workloads import EXPLORER_WORKLOADS
from benchmarks.group_workloads import GROUP_WORKLOADS
from benchmarks.log_workloads import LOG_WORKLOADS
from benchmarks.metadata_scale import METADATA_WORKLOADS
from benchmarks.metrics_workloads import METRICS_WORKLOADS
from benchmarks.raw import await_record
from benchmarks.secure_servers import SECURE, earlier_secure
from benchmarks.security_workloads import SECURITY_WARM_UP, SECURITY_WORKLOADS
from benchmarks.servers import ADDITIONS, KINDS, ROOT, PlainKbroker, Server, ServerError, commit, earlier
from benchmarks.share_workloads import SHARE_WORKLOADS
from benchmarks.spark_workloads import SPARK_WORKLOADS, can_run
from benchmarks.table_workloads import TABLE_WORKLOADS
from benchmarks.transaction_workloads import TRANSACTION_WORKLOADS
from benchmarks.workloads import WARM_UP, WORKLOADS, Bench, Figures, Workload
from compat_tests.apache_kafka import SERVER_VERSION, ApacheKafkaError, kafka_home

ALL_WORKLOADS = (
    *WORKLOADS,
    *GROUP_WORKLOADS,
    *SHARE_WORKLOADS,
    *TRANSACTION_WORKLOADS,
    *LOG_WORKLOADS,
    *BESIDE_WORKLOADS,
    *SPARK_WORKLOADS,
    *CLUSTER_WORKLOADS,
    *SECURITY_WORKLOADS,
    *ACL_WORKLOADS,
    *CORES_WORKLOADS,
    *EXPLORER_WORKLOADS,
    *METRICS_WORKLOADS,
    *TABLE_WORKLOADS,
    *CAPACITY_WORKLOADS,
    *METADATA_WORKLOADS,
)
TITLES = {workload.name: workload.title for workload in ALL_WORKLOADS}


class PeakMemory:
    """Looks at a server's resident memory twice a second, in a thread, until it is closed.

    Not more often, as it takes time from what is measured. Of the server's own process the kernel knows the peak.
    """

    def __init__(self, server: Server) -> None:
        self.peak_bytes = 0
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            with contextlib.suppress(ServerError, psutil.Error):
                self.peak_bytes = max(self.peak_bytes, self._server.resident_bytes(), self._server.peak_bytes())

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


QUIET_CPU_PERCENT = 8
"""Percent of one processor. A broker that takes less is at rest."""

DELETED_SECONDS = 0.5
"""By then both brokers have begun to remove the files of a topic that was deleted (`log.segment.delete.delay.ms`)."""

QUIET_SECONDS = 15
"""Seconds that a broker is given to come to rest. All processor time that it takes later counts as its idling."""


class Rounds(NamedTuple):
    """The number of rounds of workloads that both brokers run in turn, and of those that compare within themselves."""

    of_both: int
    alone: int

    def of(self, workload: Workload) -> int:
        if workload.phase in ("alone", "cluster-alone"):
            return self.alone
        return 1 if workload.phase in ("idle", "last") else self.of_both


class Run:
    """A run of the benchmarks: its servers, its results so far, its failures."""

    def __init__(self, bench: Bench, kinds: list[str], rounds: Rounds, save: Callable[[Run], None]) -> None:
        """``save`` is called after each measurement: a run that is cut short loses nothing."""
        self.bench, self.kinds, self.rounds, self.rounds_alone = bench, kinds, rounds.of_both, rounds.alone
        self._save = save
        self.results: dict[str, dict[str, list[Figures]]] = {}
        self.seconds: dict[str, float] = {}
        """The time that a workload has taken so far, with the start of its own servers."""
        self.failures: list[str] = []
        self._servers: dict[str, Server] = {}
        self._peaks: dict[str, PeakMemory] = {}

    def run(self, workloads: list[Workload]) -> None:
        """Fresh servers first, then the idle measurements, then rounds of load on the same two servers."""
        try:
            for phase, rounds in (("fresh", self.rounds), ("idle", 1), ("loaded", self.rounds), ("last", 1)):
                chosen = [workload for workload in workloads if workload.phase == phase]
                if phase == "loaded" and chosen:
                    chosen = [WARM_UP, *chosen]
                for number in range(rounds):
                    for index, workload in enumerate(chosen):
                        if workload is WARM_UP and number:
                            continue
                        # In turns, so that neither always comes behind what the other has just done.
                        for kind in self.kinds if (number + index) % 2 else self.kinds[::-1]:
                            started = time.monotonic()
                            if phase == "loaded":
                                self._settle()
                            self._took(workload, started)
                            self._measure(workload, kind, f"{number + 1}/{rounds}")
            for kind, peak in self._peaks.items():
                for figures in self.results.get("memory", {}).get(kind, ()):
                    figures["peak_MB"] = peak.peak_bytes / 1e6
        finally:
            for peak in self._peaks.values():
                peak.close()
            for server in self._servers.values():
                server.stop()
        self._run_clusters([workload for workload in workloads if workload.phase == "cluster"])
        self._run_secure([workload for workload in workloads if workload.phase == "secure"])
        self._run_alone([workload for workload in workloads if workload.phase in ("alone", "cluster-alone")])

    def _settle(self) -> None:
        """Wait until what was measured before is over: what it wrote is on disk, and no broker works at it any more."""
        time.sleep(DELETED_SECONDS)
        os.sync()
        until = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < until:
            before, start = self._cpu_seconds(), time.monotonic()
            time.sleep(0.5)
            if (self._cpu_seconds() - before) / (time.monotonic() - start) * 100 < QUIET_CPU_PERCENT:
                return

    def _cpu_seconds(self) -> float:
        return sum(server.cpu_seconds() for server in self._servers.values() if server.is_alive())

    def _run_clusters(self, chosen: list[Workload]) -> None:
        """Measure the chosen workloads of clusters; no other server may run any more.

        Each round starts a cluster of each broker.
        """
        if not chosen:
            return
        starts = chosen[0] is CLUSTER_WORKLOADS[0]
        if any(workload.name not in ("cluster-startup", "cluster-idle") for workload in chosen):
            chosen = [w for w in CLUSTER_WORKLOADS if w in chosen or w is CLUSTER_WARM_UP]
        for number in range(self.rounds):
            for kind in self.kinds:
                cluster = CLUSTERS[kind]()
                try:
                    if not starts:
                        cluster.start()
                        cluster.await_port()
                    for workload in chosen:
                        self._measure(workload, kind, f"{number + 1}/{self.rounds}", cluster)
                        if not cluster.is_alive():
                            self.failures.append(f"a node of {kind} is gone:\n{cluster.log_tail()}")
                            break
                finally:
                    cluster.stop()

    def _run_alone(self, chosen: list[Workload]) -> None:
        """Measurements of kbroker in this process, or of clusters that they make; no server is started."""
        for number in range(self.rounds_alone):
            for workload in chosen:
                of_cluster = workload.phase == "cluster-alone"
                for kind in self.kinds if of_cluster else [kind for kind in self.kinds if kind == "kbroker"]:
                    server = CLUSTERS[kind]() if of_cluster else KINDS[kind]()
                    try:
                        self._measure(workload, kind, f"{number + 1}/{self.rounds_alone}", server)
                    finally:
                        server.stop()

    def _run_secure(self, chosen: list[Workload]) -> None:
        """A secure server of each broker for all rounds, in turns, when no other server runs any more."""
        if not chosen:
            return
        servers: dict[str, Server] = {}
        try:
            for kind in self.kinds:
                servers[kind] = SECURE[kind]()
                servers[kind].start()
                servers[kind].await_port()
                self._measure(SECURITY_WARM_UP, kind, "-", servers[kind])
            for number in range(self.rounds):
                for index, workload in enumerate(each for each in chosen if each is not SECURITY_WARM_UP):
                    for kind in self.kinds if (number + index) % 2 else self.kinds[::-1]:
                        self._measure(workload, kind, f"{number + 1}/{self.rounds}", servers[kind])
        finally:
            for server in servers.values():
                server.stop()

    def _measure(self, workload: Workload, kind: str, number: str, server: Server | None = None) -> None:
        print(f"  {workload.name:<36} {kind:<8} {number}  ", end="", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            if server is not None:
                figures = workload.run(self.bench, server)
            elif workload.phase == "fresh":
                server = KINDS[kind]()
                try:
                    figures = workload.run(self.bench, server)
                finally:
                    server.stop()
            else:
                figures = workload.run(self.bench, self._server(kind))
        except Exception as error:  # one workload that fails must not hide the others' figures
            line = f"{workload.name} on {kind}: {type(error).__name__}: {error}"
            self.failures.append(line)
            print(f"FAILED: {error}", file=sys.stderr, flush=True)
            self._drop_if_dead(kind)
            return
        if workload not in (WARM_UP, CLUSTER_WARM_UP, SECURITY_WARM_UP):
            self.results.setdefault(workload.name, {}).setdefault(kind, []).append(figures)
            self._save(self)
        self._took(workload, started)
        said = ", ".join(f"{report.UNITS[name]} {report.shown(value)}" for name, value in figures.items())
        print(f"{time.monotonic() - started:5.1f} s  {said}", file=sys.stderr, flush=True)

    def _took(self, workload: Workload, started: float) -> None:
        self.seconds[workload.name] = self.seconds.get(workload.name, 0) + time.monotonic() - started

    def _server(self, kind: str) -> Server:
        if kind not in self._servers:
            server = KINDS[kind]()
            self._servers[kind] = server
            server.start()
            server.await_port()
            await_record(server.host, server.port, "first")
            self._peaks[kind] = PeakMemory(server)
        return self._servers[kind]

    def _drop_if_dead(self, kind: str) -> None:
        server = self._servers.get(kind)
        if server is not None and not server.is_alive():
            self.failures.append(f"{kind} died, and was started anew:\n{server.log_tail()}")
            self.bench.forget(server)
            if kind in self._peaks:
                self._peaks.pop(kind).close()
            server.stop()
            del self._servers[kind]


LOOK_SECONDS = 3.0
"""Seconds before a run in which others' use of the processors is measured."""


def machine() -> dict[str, Any]:
    """The machine, what others take of it and its versions, as facts beside the figures."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "processors": os.cpu_count(),
        "model": model,
        "memory_GB": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "busy_percent": psutil.cpu_percent(LOOK_SECONDS),
    }


def compile_bytecode() -> None:
    """Compile all modules as pip does on installing, or the first start of a checkout is measured with compilation."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "kbroker")], check=False)


def as_json(figures: dict[str, Any]) -> str:
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def write_docs(figures: dict[str, Any]) -> None:
    """docs/benchmarks.md, and the figures that it shows."""
    LATEST.write_text(as_json(figures))
    (ROOT / "docs" / "benchmarks.md").write_text(report.document(figures, TITLES))


def main() -> None:
    """Run the workloads that the command line names, and show their figures."""
    arguments = _parser().parse_args()
    if arguments.render:
        try:
            write_docs(report.joined([json.loads(path.read_text()) for path in arguments.render]))
        except ValueError as error:
            sys.exit(f"error: {error}")
        return
    if arguments.list:
        for workload in ALL_WORKLOADS:
            note = "" if workload.in_quick else "  (not in --quick)"
            note += "" if can_run(workload) else "  (needs the extra `spark`)"
            print(f"{workload.name:<36} {workload.title}{note}")
        return
    chosen = _chosen(arguments)
    of_both = arguments.rounds or (1 if arguments.quick else 5 if arguments.all else 2)
    rounds = Rounds(of_both, arguments.rounds or 1)
    kinds = _kinds(arguments)
    started = datetime.datetime.now(datetime.UTC)
    path: Path = arguments.json or ROOT / "out" / "benchmarks" / f"{started:%Y-%m-%d-%H%M}.json"
    print(how_long(chosen, rounds), file=sys.stderr)
    try:
        figures = measure(chosen, kinds, rounds, path, quick=arguments.quick, compiled=not arguments.python_client)
    except (ApacheKafkaError, LoadError, ServerError) as error:
        sys.exit(f"error: {error}")
    if arguments.write_docs or arguments.all:
        write_docs(figures)
    other = arguments.before.name if arguments.before else f"without {arguments.addition}" if arguments.addition else ""
    _show(figures, other)
    print(f"written to {os.path.relpath(path)}")
    if figures["failures"]:
        sys.exit("failed:\n  " + "\n  ".join(figures["failures"]))


LATEST = ROOT / "benchmarks" / "results" / "latest.json"


def how_long(chosen: list[Workload], rounds: Rounds) -> str:
    """Returns a line about the time that workloads will take, by that of the published run."""
    known: dict[str, float] = json.loads(LATEST.read_text()).get("seconds_of_round", {})
    timed = [workload for workload in chosen if workload.name in known]
    minutes = sum(known[workload.name] * rounds.of(workload) for workload in timed) / 60
    return (
        f"{len(chosen)} workloads, {rounds.of_both} rounds ({rounds.alone} of those on one broker): "
        f"{minutes:.0f} minutes for the {len(timed)} that were timed before"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks", description="kbroker and Apache Kafka side by side.")
    parser.add_argument("--quick", action="store_true", help="less work, one round, figures with a target only")
    parser.add_argument("--all", action="store_true", help="all workloads, five rounds, --write-docs")
    parser.add_argument("--only", action="append", metavar="NAME", help="workloads by name or pattern; repeatable")
    parser.add_argument("--list", action="store_true", help="name the workloads and end")
    parser.add_argument("--rounds", type=int, help="how often each is run (both brokers: 2, --all: 5)")
    parser.add_argument("--server", action="append", choices=sorted(KINDS), help="only this broker")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="an earlier kbroker in place of Apache Kafka")
    parser.add_argument(
        "--with",
        dest="addition",
        choices=sorted(ADDITIONS),
        help="kbroker with its metrics, or watched through its explorer, and without in place of Kafka",
    )
    parser.add_argument("--python-client", action="store_true", help="do as if there were no C compiler")
    parser.add_argument("--json", type=Path, help="where the figures go (out/benchmarks/DATE.json)")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md, and its JSON beside")
    parser.add_argument(
        "--render",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="only write the docs, from earlier runs; rounds of one commit add up, else the last one counts",
    )
    return parser


def _chosen(arguments: argparse.Namespace) -> list[Workload]:
    """The workloads to run: those that are named, or those that need no broker of their own."""
    if arguments.only:
        chosen = [w for w in ALL_WORKLOADS if any(fnmatch.fnmatch(w.name, pattern) for pattern in arguments.only)]
        if not chosen:
            sys.exit(f"error: no workload is named {', '.join(arguments.only)}; --list names them")
    else:
        chosen = [w for w in ALL_WORKLOADS if (w.in_quick or not arguments.quick) and can_run(w)]
    if arguments.addition or not (arguments.only or arguments.all):
        chosen = [w for w in chosen if w.phase not in ("cluster", "secure", "alone", "cluster-alone")]
    return chosen


def _kinds(arguments: argparse.Namespace) -> list[str]:
    """The brokers to compare, by their names in ``KINDS``, to which an earlier kbroker or one without is added."""
    wanted = arguments.server
    if arguments.before:
        if not (arguments.before / "kbroker" / "__main__.py").is_file():
            sys.exit(f"error: {arguments.before} is no checkout of kbroker")
        if arguments.write_docs or wanted:
            sys.exit("error: --before compares two checkouts; it goes without --server and --write-docs")
        KINDS["before"] = earlier(arguments.before.resolve())
        SECURE["before"] = earlier_secure(arguments.before.resolve())
        CLUSTERS["before"] = earlier_cluster(arguments.before.resolve())
        wanted = ["kbroker", "before"]
    if arguments.addition:
        if arguments.write_docs or wanted:
            sys.exit(
                "error: --with compares two nodes of this checkout; it goes without --before, --server and --write-docs"
            )
        KINDS["kbroker"], KINDS["before"] = ADDITIONS[arguments.addition], PlainKbroker
        wanted = ["kbroker", "before"]
    return [kind for kind in KINDS if not wanted or kind in wanted]


def _show(figures: dict[str, Any], other: str) -> None:
    """Print the figures, and those with a target; ``other`` is the broker in place of Apache Kafka, if there is one."""
    headings = [other if each == "Apache Kafka" and other else each for each in report.ALL_HEADINGS]
    print(report.text_table(headings, report.all_rows(figures["results"], TITLES)))
    print()
    rows = [] if other else report.target_rows(figures["results"], TITLES)
    if rows:
        print("Figures to reach")
        print(report.text_table(report.TARGET_HEADINGS, rows))
        print()


def measure(
    chosen: list[Workload], kinds: list[str], rounds: Rounds, path: Path, *, quick: bool, compiled: bool
) -> dict[str, Any]:
    """Run the workloads; the figures, which are also in the file ``path``, from the first one on."""
    kafka_home(SERVER_VERSION)  # before the clock runs: the first time, Maven fetches it
    with tempfile.TemporaryDirectory(prefix="bench-clients-") as folder:
        scratch = Path(folder)
        load = Load(scratch, compiled=compiled)
        if not load.is_compiled:
            print("no C compiler: the client is in Python and will be the bound", file=sys.stderr)
        figures: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit(),
            "apache_kafka": SERVER_VERSION,
            "client": load.version(),
            "quick": quick,
            "machine": machine(),
        }
        compile_bytecode()

        def save(run: Run, *, cut_short: bool = True) -> None:
            figures.update(cut_short=cut_short, failures=run.failures, results=run.results)
            figures["seconds_of_round"] = {
                name: round(seconds / len(run.results[name]["kbroker"]), 1)
                for name, seconds in run.seconds.items()
                if run.results.get(name, {}).get("kbroker")
            }
            write_atomically(path, as_json(figures))

        path.parent.mkdir(parents=True, exist_ok=True)
        run = Run(Bench(scratch, load, JavaPrograms(scratch), quick), kinds, rounds, save)
        run.run(chosen)
        save(run, cut_short=False)
    return figures


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at once: a run that is interrupted leaves the old text or the new, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    main()
