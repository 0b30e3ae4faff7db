"""docker-compose.yml for real: three containers that are killed, stopped, paused and cut off under stock clients.

With ``--containers``, and docker or podman with its compose. The image is built first.

Other suites run unchanged on these three nodes while one node after the other is killed:
``python -m pytest compat_tests/cluster/test_containers.py --containers -k spark``, or ``-k unchanged`` for all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compat_tests.cluster.history import History, check, check_commits, check_complete, check_reader
from compat_tests.cluster.load import Group, Writer, create_topic, read_all
from kbroker.cli.cluster_plan import free_ports

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
WITHIN = 45.0
"""Seconds after which the partitions have to be written to again; a node that is cut off keeps its session of 9 s."""


class Compose:
    """The services of docker-compose.yml under a project name of their own."""

    def __init__(self, engine: str, compose: list[str]) -> None:
        self.project = f"kbrokertest{uuid.uuid4().hex[:6]}"
        self._engine, self._compose = engine, [*compose, "-p", self.project]
        self.ports = free_ports(3)
        self.bootstrap = ",".join(f"localhost:{port}" for port in self.ports)
        self._environment = os.environ | {f"PORT_{index}": str(port) for index, port in enumerate(self.ports, 1)}

    def compose(self, *words: str, timeout: float = 600) -> None:
        """A command of compose. Fails with what it said."""
        done = subprocess.run(
            [*self._compose, *words], cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def engine(self, *words: str) -> str:
        """A command of docker or podman, and what it printed."""
        done = subprocess.run([self._engine, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    def log(self, number: int) -> str:
        """What a node told last."""
        command = [self._engine, "logs", "--tail", "20", self.container(number)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout

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

    def is_healthy(self, *words: str) -> bool:
        """What the health check says on every node."""
        for number in (1, 2, 3):
            check = ["kbroker", "cluster", "health", "-b", "localhost:9092", "--broker", str(number), *words]
            command = [self._engine, "exec", self.container(number), *check]
            if subprocess.run(command, capture_output=True, timeout=60).returncode:
                return False
        return True

    def await_healthy(self, *words: str, within: float = 90) -> None:
        deadline = time.monotonic() + within
        while not self.is_healthy(*words):
            assert time.monotonic() < deadline, "\n".join(
                f"kafka-{number}: {self.log(number)}" for number in (1, 2, 3)
            )
            time.sleep(0.2)


@pytest.fixture(scope="module")
def composed(request: pytest.FixtureRequest) -> Iterator[Compose]:
    """The three nodes, built and started."""
    if not request.config.getoption("--containers"):
        pytest.skip("only with --containers")
    if shutil.which("podman") and shutil.which("podman-compose"):
        made = Compose("podman", ["podman-compose", "--podman-build-args=--network=host"])
    elif shutil.which("docker"):
        made = Compose("docker", ["docker", "compose"])
    else:
        pytest.skip("there is neither docker nor podman-compose")
    try:
        made.compose("build")
        made.compose("up", "-d")
        made.await_healthy("--complete")
        yield made
    finally:
        made.compose("down", "-v")


@contextmanager
def _written_and_read(composed: Compose) -> Iterator[Writer]:
    """A producer and a group are at work in the body; after it, all that was acknowledged was read once, in order."""
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(composed.bootstrap, topic, PARTITIONS)
    history = History()
    group = Group(composed.bootstrap, topic)
    writer = Writer(composed.bootstrap, topic, PARTITIONS, history, per_second=1000)
    try:
        writer.await_every_partition()
        yield writer
        composed.await_healthy("--complete")
        writer.await_every_partition(WITHIN)
        writer.stop()
        final = read_all(composed.bootstrap, topic, PARTITIONS)
        group.await_up_to({partition: seen[-1].offset + 1 for partition, seen in final.items() if seen})
    finally:
        writer._ended.set()
        group.stop()
    problems = check(history, final)
    problems += check_reader(group.name, group.seen, final)
    problems += check_complete(group.name, group.seen, final)
    problems += check_commits(group.name, group.commits)
    print(f"{history.count} acknowledged, {len(history.failed)} failed, longest pause {writer.longest_pause():.1f} s")
    assert not problems, "\n".join(problems)


def test_containers_lose_nothing(composed: Compose) -> None:
    one, two, three = (composed.container(number) for number in (1, 2, 3))
    with _written_and_read(composed) as writer:
        composed.engine("kill", one)
        writer.await_every_partition(WITHIN)
        composed.engine("start", one)
        composed.await_healthy("--complete")

        composed.engine("stop", two)
        writer.await_every_partition(WITHIN)
        composed.engine("start", two)
        composed.await_healthy("--complete")

        composed.engine("pause", three)
        time.sleep(5)  # what the fault consists of
        composed.engine("unpause", three)
        writer.await_every_partition(WITHIN)

        network = composed.network(one)
        composed.engine("network", "disconnect", network, one)
        writer.await_every_partition(WITHIN)
        composed.engine("network", "connect", "--alias", "kafka-1", network, one)
        composed.await_healthy("--complete")

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
        self.kills = 0
        self.failure: BaseException | None = None

    def _reap(self) -> None:
        try:
            while not self._ended.is_set():
                name = self._composed.container(self.kills % 3 + 1)
                self._composed.engine("kill", name)
                self.kills += 1
                self._ended.wait(self.DOWN_SECONDS)
                self._composed.engine("start", name)
                self._composed.await_healthy("--complete")
                self._ended.wait(self.BETWEEN_SECONDS)
        except BaseException as failure:
            self.failure = failure

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


@pytest.mark.parametrize("suite", [*SUITES, *PIPELINES])
def test_unchanged_while_nodes_are_killed(composed: Compose, suite: str, tmp_path: Path) -> None:
    """Other people's clients and the Spark pipelines, by their own tests.

    Some clients give up a call whose node dies under it, whatever broker that is (kafka-python's admin does not try
    another); so a test that has failed may try once more.
    """
    command = [sys.executable, "-m", "pytest", f"compat_tests/{suite}", "--bootstrap", composed.bootstrap, "-q"]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}"]
    told = []
    with _written_and_read(composed), Reaper(composed) as reaper:
        for again in ([], ["--last-failed"]):
            output = tmp_path / "output"
            with output.open("wb") as file:
                done = subprocess.run([*command, *again], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, timeout=1200)
            told.append(output.read_text(errors="replace"))
            if not done.returncode:
                break
    last = [lines.strip().splitlines()[-1] for lines in told]
    print(f"{suite}: {reaper.kills} nodes killed; {', then '.join(last)}")
    assert reaper.kills >= 1
    assert done.returncode == 0, told[-1][-6000:]
