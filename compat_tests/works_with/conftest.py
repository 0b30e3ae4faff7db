"""Broker of three nodes for programs that work with Kafka, and the fixtures of their tests.

``program`` is the folder's program.toml, ``seen`` takes the facts that the page shows. ``--works-with`` runs these
tests, which install much on first use; ``--write-seen`` writes what they have seen into each folder's seen.toml, or,
on Apache Kafka, that they have passed there into seen_on_apache.toml.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.brokers import Broker, broker_under_test
from compat_tests.works_with.nodes import node_count
from compat_tests.works_with.program import Program, Seen, SeenOnApache, read_program, write_seen, write_seen_on_apache
from kbroker.version import __version__

NODES = 3
"""The number of nodes of the tests of programs, if the command line does not say otherwise."""


@dataclass
class _Course:
    """The tests of a folder in this session."""

    lines: list[str] = field(default_factory=list)
    nodes: int = 0
    is_whole: bool = True


_COURSES = pytest.StashKey[dict[Path, _Course]]()


def _course(config: pytest.Config, folder: Path) -> _Course:
    return config.stash.setdefault(_COURSES, {}).setdefault(folder, _Course())


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not item.config.getoption("--works-with"):
        pytest.skip("programs are installed on first use, so their tests run when asked for: --works-with")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        _course(item.config, item.path.parent).is_whole = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.outcome != "passed":
        _course(item.config, item.path.parent).is_whole = False
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.getoption("--write-seen"):
        return
    if config.getoption("--bootstrap"):
        raise pytest.UsageError("--write-seen is for what is seen on the broker that the tests start")
    for folder, course in config.stash.get(_COURSES, {}).items():
        if course.is_whole and course.lines:
            _write(folder, course, on_apache=config.getoption("--broker") == "apache")


def _write(folder: Path, course: _Course, *, on_apache: bool) -> None:
    """Write what the tests of a folder have seen, all of which have passed."""
    program = read_program(folder)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    if on_apache:
        write_seen_on_apache(folder, SeenOnApache(today, SERVER_VERSION, course.nodes, program.version))
        return
    lines = tuple(course.lines)
    write_seen(folder, Seen(today, __version__, course.nodes, program.runtime(), program.version, lines))


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test, of three nodes. A module with options has a fixture like this of its own."""
    yield from broker_under_test(request, default_nodes=NODES)


@pytest.fixture(scope="module")
def bootstrap(broker: Broker) -> str:
    """The addresses of the broker under test."""
    return broker.bootstrap


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest) -> Program:
    """The program of the test's folder."""
    return read_program(request.path.parent)


@pytest.fixture
def seen(request: pytest.FixtureRequest, broker: Broker) -> Callable[..., None]:
    """Takes lines of what the test has seen. The page shows them if all tests of the folder pass."""
    course = _course(request.config, request.path.parent)
    course.nodes = node_count(broker)

    def add(*lines: str) -> None:
        course.lines += lines

    return add
