"""docker-compose.yml for real: three containers that are killed, stopped, paused and cut off under stock clients.

With ``--containers``, and docker or podman with its compose. The image is built first.

Other suites run unchanged on these three nodes while one node after the other is killed:
``python -m pytest compat_tests/cluster/test_containers.py --containers -k spark``, or ``-k unchanged`` for all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat_tests.cluster.history import History, check, check_commits, check_complete, check_reader
from compat_tests.cluster.load import Group, Writer, create_topic, read_all
from compat_tests.cluster.moments import Moment, read_moments
from compat_tests.groups.conftest import OPTIONS
from kbroker.client import Client as BrokerClient
from kbroker.client import ClientError
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.diagnosis.asking import ask_cluster
from kbroker.tools.diagnosis.cluster import health_problems
from tests.patience import LONG, SHORT

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
WITHIN = 45.0
"""Seconds after which the partitions have to be written to again; a node that is cut off keeps its session of 9 s."""


class Compose:
    """The services of docker-compose.yml under a project name of their own.

    Beside that file they get only what ``groups/`` sets on any broker that it starts, so that KIP-848's members are
    missed before its tests give up (a session of 45 s by default).
    """

    def __init__(self, engine: str, compose: list[str], directory: Path) -> None:
        self.project = f"kbrokertest{uuid.uuid4().hex[:6]}"
        settings = [option.split("=") for option in OPTIONS if option.startswith("group.consumer.")]
        environment = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in settings}
        more = directory / "more.json"  # which is YAML
        more.write_text(json.dumps({"services": {f"kafka-{n}": {"environment": environment} for n in (1, 2, 3)}}))
        self._engine = engine
        self._compose = [*compose, "-f", str(ROOT / "docker-compose.yml"), "-f", str(more), "-p", self.project]
        self.ports = free_ports(3)
        self.bootstrap = ",".join(f"localhost:{port}" for port in self.ports)
        self._environment = os.environ | {f"PORT_{index}": str(port) for index, port in enumerate(self.ports, 1)}

    def compose(self, *words: str, timeout: float = 2 * LONG) -> None:
        """A command of compose. Fails with what it said."""
        done = subprocess.run(
            [*self._compose, *words], cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def engine(self, *words: str) -> str:
        """A command of docker or podman, and what it printed."""
        done = subprocess.run([self._engine, *words], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    def log(self, number: int, lines: int = 20) -> str:
        """The last lines of a node's log."""
        command = [self._engine, "logs", "--tail", str(lines), self.container(number)]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SHORT
        ).stdout

    def container(self, number: int) -> str:
        """The container of service kafka-``number``, running or not."""
        labels = {"project": self.project, "service": f"kafka-{number}"}
        filters = [f"--filter=label=com.docker.compose.{name}={value}" for name, value in labels.items()]
        [name] = self.engine("ps", "-a", *filters, "--format", "{{.Names}}").split()
        return name

    def network(self, container: str) -> str:
        """The name of the network that it is in."""
        [found] = json.loads(self.engine("inspect", container))
        return str(next(iter(found["NetworkSettings"]["Networks"])))

    def await_health_checks(self, within: float = LONG) -> None:
        """Until the command of the containers' health checks is content in each of them."""
        deadline = time.monotonic() + within
        for number in (1, 2, 3):
            check = ["kbroker", "cluster", "health", "-b", "localhost:9092", "--broker", str(number)]
            command = [self._engine, "exec", self.container(number), *check]
            while subprocess.run(command, capture_output=True, timeout=SHORT).returncode:
                assert time.monotonic() < deadline, f"kafka-{number}: {self.log(number)}"
                time.sleep(0.5)

    def problems(self) -> list[str]:
        """The cluster's problems as the nodes report them; asked from outside, as that costs them little."""
        found = []
        for number, port in enumerate(self.ports, 1):
            try:
                with BrokerClient(f"localhost:{port}", timeout=5) as client:
                    missing = health_problems(ask_cluster(client), broker=number, complete=True)
            except ClientError as error:
                missing = [str(error)]
            found += [f"kafka-{number}: {problem}" for problem in missing]
        return found

    def await_complete(self, within: float = LONG) -> None:
        """Until all nodes are there with all their replicas in sync, in the words of each of them."""
        deadline = time.monotonic() + within
        while found := self.problems():
            assert time.monotonic() < deadline, "\n".join(
                [*found, *(f"kafka-{number}: {self.log(number)}" for number in (1, 2, 3))]
            )
            time.sleep(0.2)


def engine_here() -> tuple[str, list[str]]:
    """The engine of this machine, and its compose. Skips where there is none."""
    if shutil.which("podman") and shutil.which("podman-compose"):
        return "podman", ["podman-compose", "--podman-build-args=--network=host"]
    if shutil.which("docker"):
        return "docker", ["docker", "compose"]
    pytest.skip("there is neither docker nor podman-compose")


@pytest.fixture(scope="module")
def composed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """The three nodes, built and started."""
    if not request.config.getoption("--containers"):
        pytest.skip("only with --containers")
    made = Compose(*engine_here(), tmp_path_factory.mktemp("compose"))
    try:
        made.compose("build")
        made.compose("up", "-d")
        made.await_complete()
        made.await_health_checks()
        yield made
    finally:
        made.compose("down", "-v")


@contextmanager
def _written_and_read(composed: Compose, per_second: int = 1000) -> Iterator[Writer]:
    """A producer and a group are at work in the body; after it, all that was acknowledged was read once, in order."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(composed.bootstrap, topic, PARTITIONS)
    history = History()
    group = Group(composed.bootstrap, topic)
    writer = Writer(composed.bootstrap, topic, PARTITIONS, history, per_second=per_second)
    try:
        writer.await_every_partition()
        yield writer
        composed.await_complete()
        writer.await_every_partition(WITHIN)
        writer.stop()
        final = read_all(composed.bootstrap, topic, PARTITIONS, ends=history.ends)
        group.await_up_to({partition: seen[-1].offset + 1 for partition, seen in final.items() if seen})
    finally:
        writer._ended.set()
        group.stop()
    problems = check(history, final)
    problems += check_reader(group.name, group.seen, final)
    problems += check_complete(group.name, group.seen, final)
    problems += check_commits(group.name, group.commits, group.committed())
    print(f"{history.count} acknowledged, {len(history.failed)} failed, longest pause {writer.longest_pause():.1f} s")
    assert not problems, "\n".join(problems)


def test_containers_lose_nothing(composed: Compose) -> None:
    one, two, three = (composed.container(number) for number in (1, 2, 3))
    with _written_and_read(composed) as writer:
        composed.engine("kill", one)
        writer.await_every_partition(WITHIN)
        composed.engine("start", one)
        composed.await_complete()

        composed.engine("stop", two)
        writer.await_every_partition(WITHIN)
        composed.engine("start", two)
        composed.await_complete()

        composed.engine("pause", three)
        time.sleep(5)  # what the fault consists of
        composed.engine("unpause", three)
        writer.await_every_partition(WITHIN)

        network = composed.network(one)
        composed.engine("network", "disconnect", network, one)
        writer.await_every_partition(WITHIN)
        composed.engine("network", "connect", "--alias", "kafka-1", network, one)
        composed.await_complete()

        composed.engine("kill", one, two, three)
        composed.engine("start", one, two, three)


class Reaper:
    """Kills one node after the other, each when the one before is back and all replicas are in sync again."""

    DOWN_SECONDS = 3.0
    BETWEEN_SECONDS = 5.0

    def __init__(self, composed: Compose) -> None:
        self._composed = composed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._reap)
        self.kills: list[float] = []
        """When, in seconds since 1970."""
        self.recoveries: list[float] = []
        """When all replicas were in sync again after each of them."""
        self.failure: BaseException | None = None

    def _reap(self) -> None:
        try:
            while not self._ended.is_set():
                name = self._composed.container(len(self.kills) % 3 + 1)
                self.kills.append(time.time())
                self._composed.engine("kill", name)
                self._ended.wait(self.DOWN_SECONDS)
                self._composed.engine("start", name)
                self._composed.await_complete()
                self.recoveries.append(time.time())
                self._ended.wait(self.BETWEEN_SECONDS)
        except BaseException as failure:
            self.failure = failure

    def was_missing(self, start: float, stop: float) -> bool:
        """Whether a node was killed, or not yet back with all its replicas, at some moment between the two."""
        until = [*self.recoveries, float("inf")]
        return any(kill <= stop and back >= start for kill, back in zip(self.kills, until, strict=False))

    def __enter__(self) -> Reaper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


SUITES = ("confluent_kafka", "kafka_python", "aiokafka", "kcat", "kafkajs", "java", "groups/test_members.py")
PIPELINES = ("spark/test_examples.py", "spark/test_source.py", "spark/test_sink.py")
DESELECTED = {
    # It measures time. kafkajs (2.2.4, consumerGroup.js) leaves a broker that leads nothing of the group's alone for
    # max.wait, 20 s in this case: when the leader changes, the new one is not asked before that.
    "kafkajs": ["test_kafkajs.py::test_case[long_poll]"]
}
"""Cases that hold on to a time in which no node may die."""
for _suite in SUITES[:-1]:
    # Without idempotence a batch that is sent again may come behind its next.
    DESELECTED.setdefault(_suite, []).append(f"test_{_suite}.py::test_case[produce_to_many]")


@dataclass
class Try:
    """A run of a suite: the output of pytest, its exit code, and the phases of each test."""

    output: Path
    code: int
    moments: list[Moment]

    @property
    def failures(self) -> list[Moment]:
        """The failed phases, the last one of each test."""
        return list({moment.test: moment for moment in self.moments if moment.outcome == "failed"}.values())

    def span(self, test: str) -> tuple[float, float]:
        """The times at which a test began and ended, in seconds since 1970."""
        phases = [moment for moment in self.moments if moment.test == test]
        return min(phase.start for phase in phases), max(phase.stop for phase in phases)

    def __str__(self) -> str:
        return self.output.read_text(errors="replace").strip().splitlines()[-1].strip("= ")


def _run(suite: str, bootstrap: str, directory: Path, *more: str) -> Try:
    """A suite once; what it prints stays in the directory."""
    directory.mkdir()
    command = [sys.executable, "-m", "pytest", f"compat_tests/{suite}", "--bootstrap", bootstrap, "-q", "-rs"]
    command += ["-o", f"cache_dir={directory.parent / 'cache'}", "-p", "compat_tests.cluster.moments", *more]
    for case in DESELECTED.get(suite, ()):
        command += ["--deselect", f"compat_tests/{suite}/{case}"]
    output, moments = directory / "output", directory / "moments"
    with output.open("wb") as file:
        environment = os.environ | {"MOMENTS": str(moments)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=6 * LONG
        )
    return Try(output, done.returncode, read_moments(moments))


@pytest.mark.parametrize("suite", [*SUITES, *PIPELINES])
def test_unchanged_while_nodes_are_killed(composed: Compose, suite: str, tmp_path: Path) -> None:
    """Other people's clients and the Spark pipelines, by their own tests.

    Some clients give up a call whose node dies under it, whatever broker that is (kafka-python's admin does not try
    another); so a test that has failed while a node was missing may try once more, and is named in the result. What
    both tries printed stays in ``tmp_path``.
    """
    with _written_and_read(composed, per_second=300), Reaper(composed) as reaper:
        first = last = _run(suite, composed.bootstrap, tmp_path / "first")
        if first.failures:
            again = ("--last-failed", "--last-failed-no-failures=none")
            last = _run(suite, composed.bootstrap, tmp_path / "second", *again)
    for number in (1, 2, 3):
        (tmp_path / f"kafka-{number}.log").write_text(composed.log(number, 100_000))
    print(f"{suite}: {len(reaper.kills)} nodes killed; {first}{'' if last is first else f', then {last}'}")
    for case in DESELECTED.get(suite, ()):
        print(f"  deselected: {case}")
    for failure in first.failures:
        print(f"  second try: {failure.test} ({failure.phase}): {failure.message}")
    print(f"  kills at {[round(at, 1) for at in reaper.kills]}; output in {tmp_path}")
    assert reaper.kills
    assert first.code in (0, 1), f"the first try was not run to its end: {first.code}"
    assert last.code == 0, "\n".join(each.read_text(errors="replace")[-6000:] for each in {first.output, last.output})
    unexplained = [each for each in first.failures if not reaper.was_missing(*first.span(each.test))]
    assert not unexplained, f"failed while all nodes were there: {unexplained}"


def test_the_compose_file_of_the_page_serves_the_host(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`docs/how_to/my_own_compose_file.md`, as a reader has it: its file, and its commands beside the container."""
    if not request.config.getoption("--containers"):
        pytest.skip("only with --containers")
    engine, compose = engine_here()
    [port] = free_ports(1)
    text = (ROOT / "docs" / "how_to" / "my_own_compose_file.md").read_text("utf-8").replace("1:9092", f"1:{port}")
    blocks = dict(re.findall(r"^```(yaml|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    (tmp_path / "compose.yaml").write_text(blocks["yaml"])
    (tmp_path / "kbroker").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kbroker "$@"\n')
    (tmp_path / "kbroker").chmod(0o755)
    environment = os.environ | {
        "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "KBROKER_BOOTSTRAP": f"127.0.0.1:{port}",
    }

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * LONG)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    network = ["--network=host"] if engine == "podman" else []
    run(engine, "build", "-t", "kbroker", *network, str(ROOT))
    project = [*compose, "-p", f"kbrokerpage{uuid.uuid4().hex[:6]}"]
    try:
        run(*project, "up", "-d", "kafka")
        healthy = "until kbroker cluster health; do sleep 1; done"
        run("timeout", str(int(LONG)), "sh", "-c", healthy)
        assert run("sh", "-eu", "-c", blocks["sh"]).endswith("two pizzas\n")
    finally:
        run(*project, "down", "-v")
