"""Shared fixtures: the place of Apache Kafka's own tools, for the few tests that ask them."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

from kbroker.testing import RunningBroker, running_broker
from tests.with_each import examples

ROOT = Path(__file__).parent.parent

# How long an example takes, or the making of it, says something of the machine; what is too slow shows in benchmarks.
settings.register_profile(
    "kbroker", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kbroker")


FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that lives for a second or two: the fastest start counts, not the best code."""

os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(FAST_START))  # of the JVM that PySpark starts


def find_kafka_home() -> Path | None:
    """The directory of Apache Kafka 4.3.1 with its ``libs``, if this machine has one."""
    candidates = [
        os.environ.get("KAFKA_HOME"),
        ROOT / ".cache" / "kafka-4.3.1",
        Path.home() / ".cache" / "kafka-dist-4.3.1",
    ]
    for candidate in candidates:
        if candidate and (Path(candidate) / "libs").is_dir() and shutil.which("java"):
            return Path(candidate)
    return None


@pytest.fixture(scope="session")
def kafka_home() -> Path:
    """Apache Kafka's directory; the test is skipped without one."""
    home = find_kafka_home()
    if home is None:
        pytest.skip("Apache Kafka 4.3.1 is not on this machine (KAFKA_HOME, or make kafka)")
    return home


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has started the tests in the background, and the processes that they interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Let tests find Apache Kafka's tools in KAFKA_HOME, where a distribution has them, when only its jars are here."""
    for plugin in ("tests.flaky", "tests.coroutines"):
        config.pluginmanager.import_plugin(plugin)
    home = find_kafka_home()
    if home is None or os.environ.get("KAFKA_HOME"):
        return
    if not (home / "bin" / "kafka-dump-log.sh").exists():
        home = _with_tools(home)
    os.environ["KAFKA_HOME"] = str(home)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the collector of garbage pass over ten thousand tests, which all stay, now and whenever it looks at all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


WAITING = {"cli", "console", "node", "tables", "tests"}
"""Folders of tests that wait for nodes most of their time."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let files that wait for nodes take turns with those that compute: workers side by side use all processors.

    Of both come files with slow tests first, then those with many: workers end together.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items)
    longest_first = sorted(count, key=lambda path: (path not in slow, -count[path], path))
    kinds = [[path for path in longest_first if (path.parent.name in WAITING) is waits] for waits in (True, False)]
    order = {path: (turn, path) for kind in kinds for turn, path in enumerate(kind)}
    items.sort(key=lambda item: order[item.path])


class _FilesOrTests(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a file at a time; of files whose tests share nothing and are long, a test."""

    APART = ("tests/test_how_to_pages.py", "tests/sim/test_cluster_simulation.py", "tests/sim/test_raft_simulation.py")

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(self.APART) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Let no worker be left alone with a long file when the others have nothing more to do."""
    return _FilesOrTests(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the streams that commands of earlier tests have logged to in this process: they are closed."""
    root = logging.getLogger()
    for handler in [*root.handlers]:
        if isinstance(handler, logging.StreamHandler) and handler.stream.closed:
            root.removeHandler(handler)


def _with_tools(home: Path) -> Path:
    """The distribution's form around the jars of `home`; another run of the tests may be making it, too."""
    tools = ROOT / ".cache" / "kafka-tools"
    (tools / "bin").mkdir(parents=True, exist_ok=True)
    link = tools / f"libs.{os.getpid()}"
    link.symlink_to(home / "libs", target_is_directory=True)
    link.replace(tools / "libs")
    script = tools / "bin" / "kafka-dump-log.sh"
    written = script.with_name(f"{script.name}.{os.getpid()}")
    written.write_text(
        f'#!/bin/sh\nexec java -Xmx128M {" ".join(FAST_START)} -cp "$(dirname "$0")/../libs/*" \\\n'
        '    org.apache.kafka.tools.DumpLogSegments "$@"\n'
    )
    written.chmod(0o755)
    written.replace(script)
    return tools


@pytest.fixture(scope="module", autouse=True)
def _loggers_are_put_back() -> Iterator[None]:
    """A level that the tests of one file leave behind would keep those of another from the lines that they look for."""
    before = _set_loggers()
    yield
    assert _set_loggers() == before, "caplog.set_level puts a level back when its test ends"


def _set_loggers() -> dict[str, tuple[int, bool]]:
    """Returns level and `propagate` of the root, and of those of the package's loggers that have not the default."""
    loggers = [logging.root, *(logging.getLogger(name) for name in [*logging.root.manager.loggerDict])]
    return {
        each.name: (each.level, each.propagate)
        for each in loggers
        if each.name.split(".")[0] in ("root", "kbroker") and (each.level or not each.propagate)
    }


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker for the tests of one file."""
    with running_broker({"log.retention.ms": "-1"}) as running:  # records of tests are old
        yield running
