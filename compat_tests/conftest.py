"""The broker that the cases run against, the clients, and the recording of results for the table in the docs.

pytest compat_tests                            kbroker, started by the tests: one node, three, or both in turn
pytest compat_tests --nodes 3                  three nodes wherever a folder does not need just one; 1: one everywhere
pytest compat_tests --shape apart-3.3          nodes of one role at the level of Kafka 3.3; see compat_tests/shapes
pytest compat_tests --broker apache            Apache Kafka 4.4.0, started by the tests; so many nodes as of kbroker
pytest compat_tests/spark --broker both        each test on kbroker and on Apache Kafka, in one run
pytest compat_tests --bootstrap HOST:PORT      one that runs already (or environment KBROKER_COMPAT_BOOTSTRAP)
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from compat_tests.apache_kafka import cache_dir, locked
from compat_tests.brokers import Broker, broker_under_test
from compat_tests.clients import Clients
from compat_tests.shapes.shaped import SHAPES

# PySpark's JVM lives for some minutes, and its code is new all the time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")


LONG_LOCKS = "group.share.max.record.lock.duration.ms=600000"
"""For members of share groups that hold records while they are looked at, however slow the machine is."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compat")
    group.addoption(
        "--broker",
        choices=("kbroker", "apache", "both"),
        default="kbroker",
        help="the broker that the tests start; both, for compat_tests/spark: each test on the one and on the other",
    )
    group.addoption(
        "--older-spark", action="store_true", help="also the smoke tests of older PySparks (they download 800 MB once)"
    )
    group.addoption(
        "--nodes", type=int, metavar="N", help="so many nodes for every test, instead of as many as it is marked with"
    )
    group.addoption(
        "--shape",
        choices=SHAPES,
        help="a cluster of kbroker with roles apart, several log directories, or at an older release's level",
    )
    group.addoption(
        "--containers",
        action="store_true",
        help="also what builds the image, by podman or docker: cluster/test_containers.py and testcontainers/",
    )
    group.addoption("--messages", type=int, metavar="N", help="how many the tests of exactly-once copy (2,000; 400)")
    group.addoption("--record", action="store_true", help="write the expected outputs of the tools anew")
    group.addoption(
        "--works-with", action="store_true", help="also the programs of compat_tests/works_with (they install a lot)"
    )
    group.addoption("--write-seen", action="store_true", help="write what the tests of these programs have seen")
    group.addoption(
        "--bootstrap", default=os.environ.get("KBROKER_COMPAT_BOOTSTRAP"), help="a broker that runs already"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.flaky")
    config.addinivalue_line("markers", "feature(client, group, title): the cell of docs/compatibility.md")
    config.addinivalue_line("markers", "nodes(N, ...): judged on a broker of N nodes, and on each further number")
    config.stash[_RESULTS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn a test with the mark `nodes` into one for each number: [1-node] and [3-nodes]."""
    mark = metafunc.definition.get_closest_marker("nodes")
    if mark is not None and not metafunc.config.getoption("--nodes") and not metafunc.config.getoption("--bootstrap"):
        names = [f"{count}-node{'s' if count > 1 else ''}" for count in mark.args]
        metafunc.parametrize("broker", mark.args, indirect=True, ids=names, scope="session")


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test."""
    yield from broker_under_test(request, LONG_LOCKS)


@pytest.fixture(scope="session")
def clients(broker: Broker) -> Iterator[Clients]:
    """All clients, each made when first asked for."""
    made = Clients(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """host:port of the broker under test."""
    return broker.bootstrap


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over the collected tests, which all stay."""
    gc.collect()
    gc.freeze()


_RESULTS = pytest.StashKey[dict[str, dict[str, str]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mark = item.get_closest_marker("feature")
    if mark is not None and (report.when == "call" or report.outcome != "passed"):
        outcome: str = report.outcome
        reason = ""
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        elif report.outcome == "failed" and call.excinfo is not None:
            reason = call.excinfo.exconly(tryshort=True).splitlines()[0][:200]
        client, group, title = mark.args
        results = item.config.stash[_RESULTS]
        key = json.dumps([client, group, title])
        # A row may gather several tests: it fails if one does.
        if results.get(key, {}).get("outcome") != "failed":
            results[key] = {"outcome": outcome, "reason": reason}
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash[_RESULTS]
    if not results or session.config.getoption("--collect-only"):
        return
    name = session.config.getoption("--broker")
    if session.config.getoption("--bootstrap"):
        name = "external"
    elif session.config.getoption("--nodes"):
        name = f"{name}-{session.config.getoption('--nodes')}-nodes"
    elif session.config.getoption("--shape"):
        name = f"{name}-{session.config.getoption('--shape')}"
    directory = cache_dir() / "compat"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"results-{name}.json"
    with locked(path.stem):  # sessions may run side by side, and each adds its own
        merged: dict[str, Any] = {}
        if path.exists():
            rows = json.loads(path.read_text())
            merged = {json.dumps([row["client"], row["group"], row["title"]]): row for row in rows}
        for key, result in results.items():
            client, group, title = json.loads(key)
            merged[key] = {"client": client, "group": group, "title": title, **result}
        path.write_text(json.dumps(list(merged.values()), indent=1) + "\n")
