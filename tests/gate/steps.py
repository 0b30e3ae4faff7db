"""The steps of the gate: what `.ci/run` must pass before a change lands, and what `make everything` adds to that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Step:
    """A command that make runs; `minutes` is how long it takes beside two others on two processors.

    Tests skip that need an `optional` step which failed.
    """

    name: str
    arguments: tuple[str, ...]
    minutes: float
    optional: bool = False

    @property
    def limit(self) -> int:
        """Seconds after which the step hangs."""
        return 600 + int(self.minutes * 120)


def _directories(names: str) -> str:
    return " ".join(f"compat_tests/{name}" for name in names.split())


def _but(names: str) -> str:
    return " ".join(f"--ignore=compat_tests/{name}" for name in names.split())


FAMILIES = "confluent_kafka java kafka_python kafkajs"
OTHER_CLIENTS = "aiokafka cross_client kcat"
CLUSTERS = "cluster mixed_cluster log_interchange transactions"
WIRE = "wire_differential"
SPARK = "spark spark_control"
ONE_QUERY = "compat_tests/spark/test_sink.py::test_from_topic_to_topic_and_again"

# Left out on the second Python: pure cores and files, which use little of it, pages, whole clusters, and what is slow.
NOT_ON_SECOND = """
    console sim groups raft_metadata transactions replication share_partitions share_coordinator handlers log doctor top
    diagnosis explorer records_io schemas telemetry security spark_examples benchmarks gate test_readme.py test_*page.py
    test_operations.py test_docs.py test_links.py test_kips.py test_testing*.py cli/test_completion.py
    cli/test_no_secret_is_told.py cli/test_record_files.py cli/test_up.py
"""
NODES_ON_SECOND = """
    clients_smoke connection forwarded_requests http_server large_fetches listener log_opening observed_requests peer
    reply_queue sasl tls tls_stream watched_connections work_queue
"""


def _left_out_on_second() -> str:
    tests = ROOT / "tests"
    kept = {f"test_{name}.py" for name in NODES_ON_SECOND.split()}
    paths = [path for pattern in NOT_ON_SECOND.split() for path in tests.glob(pattern)]
    paths += [path for path in tests.glob("node/test_*.py") if path.name not in kept]
    return " ".join(f"--ignore={path.relative_to(ROOT)}" for path in sorted(paths))


INSTALLS = [Step("install jars", ("kafka",), 3, optional=True), Step("install Spark", (".venv/.spark",), 3)]
"""Run side by side before all else; two steps would each make what they share."""

FIRST = [
    Step("test", ("test", "WORKERS=3"), 16),
    Step("compat, a client of each family", ("compat", f"ONLY={_directories(FAMILIES)}"), 8),
    Step("compat, wire", ("compat", f"ONLY={_directories(WIRE)}"), 6),
    Step("check", ("check",), 4),
    Step("compat, a Spark query", ("compat", f"ONLY={ONE_QUERY}"), 2),
    # On a machine that is busy with other steps, so the time is no subject here.
    Step("damage, 40 tries", ("damage", "ARGS=--seed 118 --tries 40 --limit 60"), 2),
]
"""The steps of `.ci/run`, the longest first, so that all end together."""

INSTALL_SECOND = Step("install the second Python", ("test-newest", "ONLY=", "ARGS=--version"), 3)

REST = [
    Step("compat, others", ("compat", f"ARGS={_but(f'{FAMILIES} {OTHER_CLIENTS} {CLUSTERS} {WIRE} {SPARK}')}"), 32),
    Step("compat, clusters", ("compat", f"ONLY={_directories(CLUSTERS)}"), 22),
    Step("compat, Spark", ("compat", f"ONLY={_directories(SPARK)}"), 18),
    Step("test, what is long or needs Java", ("test", "ONLY=tests", "ARGS=-m 'spark or kafka or everything'"), 12),
    Step("compat, other clients", ("compat", f"ONLY={_directories(OTHER_CLIENTS)}"), 5),
    Step(
        "test, the newest Python", ("test-newest", f"ARGS={_left_out_on_second()} -m 'not slow and not everything'"), 8
    ),
    Step("dist, the newest Python", ("dist", "ARGS=--newest"), 4),
    Step("soak", ("soak", "SEEDS=5"), 22),
    Step("damage, 2000 tries", ("damage", "ARGS=--seed 1001 --tries 2000 --jobs 2 --limit 60"), 45),
]
"""The steps of `make everything` besides `FIRST`."""


def part_of(steps: Iterable[Step], number: int, count: int) -> list[Step]:
    """Returns the steps of part `number` (from 1) of `count` parts that take about as long."""
    parts: list[list[Step]] = [[] for _ in range(count)]
    for step in sorted(steps, key=lambda step: -step.minutes):
        min(parts, key=lambda part: sum(each.minutes for each in part)).append(step)
    return parts[number - 1]
