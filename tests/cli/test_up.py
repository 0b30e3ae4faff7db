"""kbroker up as a user meets it: a process, its output, its nodes, its exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trio
from confluent_kafka.admin import AdminClient

from kbroker.client import Client
from kbroker.client.nodes import ClusterBroker, describe_cluster, describe_quorum
from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.cli.cluster_plan import free_ports, plan_cluster, prepare
from kbroker.tools.cli.up import Supervisor
from kbroker.tools.cli.up_table import Node, State, caption, row, table
from kbroker.tools.diagnosis.facts import ClusterView, Quorum, replica_counts
from kbroker.types import ZERO_UUID
from tests.cli_command import kbroker
from tests.patience import LONG, SHORT, eventually

ROOT = str(Path(__file__).parents[2])
pytestmark = pytest.mark.slow


class Up:
    """The command while it runs."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.bootstrap = ""

    def await_ready(self) -> list[str]:
        """The addresses of the ready line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("kbroker ready: "), self.errors
        self.bootstrap = line.split(": ")[1].strip()
        return self.bootstrap.split(",")

    @property
    def errors(self) -> str:
        return (self.directory / "stderr").read_text()

    def nodes(self) -> dict[int, psutil.Process]:
        """The nodes' processes, by id."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            for word in child.cmdline():
                if match := re.search(r"node-(\d+)\.properties$", word):
                    found[int(match[1])] = child
        return found

    def finish(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LONG)


@contextmanager
def up(tmp_path: Path, *words: str) -> Iterator[Up]:
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", "up", "--port", "0", "--data", "data", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": ROOT},
        )
    assert process.stdout is not None
    try:
        yield Up(process, tmp_path)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def health(bootstrap: str, *words: str, seconds: int = SHORT) -> subprocess.CompletedProcess[str]:
    return kbroker("cluster", "health", "-b", bootstrap, "--timeout", str(seconds), *words)


def test_three_nodes_serve_and_stop_in_good_order(tmp_path: Path) -> None:
    with up(tmp_path, "-o", "num.partitions=4") as running:
        addresses = running.await_ready()
        assert len(set(addresses)) == 3
        with Client(running.bootstrap, timeout=SHORT) as client:
            found = describe_cluster(client)
            assert [str(broker.id) for broker in found.brokers] == ["1", "2", "3"]
            assert [f"{broker.host}:{broker.port}" for broker in found.brokers] == addresses
            # Whichever node is asked hears of the last one's admission a moment later than that one.
            eventually(lambda: not any(broker.fenced for broker in describe_cluster(client).brokers), "fenced")
            quorum = describe_quorum(client).topics[0].partitions[0]
            assert sorted(voter.replica_id for voter in quorum.current_voters) == [1, 2, 3]
        processes = running.nodes()
        assert sorted(processes) == [1, 2, 3]
        told = health(running.bootstrap, "--broker", "3", "--complete")
        assert told.returncode == 0, told.stderr
        assert re.fullmatch(r"healthy: node [123] is the active controller, 3 brokers, 0 partitions\n", told.stdout)
        assert running.finish() == 0
        assert health(running.bootstrap).returncode == 1
        assert not any(process.is_running() for process in processes.values())
        for number in (1, 2, 3):
            assert "has stopped" in (tmp_path / "data" / f"node-{number}.log").read_text()
            assert "num.partitions=4" in (tmp_path / "data" / f"node-{number}.properties").read_text()


def test_a_node_that_dies_is_told_and_started_again(tmp_path: Path) -> None:
    with up(tmp_path, "--restart") as running:
        running.await_ready()
        running.nodes()[2].kill()
        eventually(lambda: "node 2 serves again" in running.errors, running.errors)
        assert "node 2 died: SIGKILL" in running.errors
        assert sorted(running.nodes()) == [1, 2, 3]
        assert running.finish(signal.SIGINT) == 0


def test_without_restart_the_others_serve_on_and_the_exit_code_tells(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        addresses = running.await_ready()
        running.nodes()[3].kill()
        eventually(lambda: "node 3 died" in running.errors, running.errors)
        assert sorted(running.nodes()) == [1, 2]
        told = health(addresses[0], "--broker", "4", "--json")
        assert told.returncode == 1 and '"healthy": false' in told.stdout
        assert told.stderr == "kbroker: broker 4 is not registered\n"
        assert health(addresses[1], "--broker", "1").returncode == 0
        eventually(lambda: "\nbut not complete: Broker 3 is fenced" in health(addresses[1]).stdout, "node 3 is fenced")
        assert health(addresses[1], "--broker", "3", seconds=2).returncode == 1
        assert health(addresses[1], "--complete").returncode == 1
        running.nodes()[1].kill()
        eventually(lambda: health(addresses[1], seconds=2).returncode == 1, "no quorum")
        assert running.finish() == 1


def test_the_console_shows_the_cluster(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    with up(tmp_path, "-n", "2", "--console", "0") as running:
        running.await_ready()
        assert running.process.stdout is not None
        line = running.process.stdout.readline()
        page = re.search(r"http://127.0.0.1:\d+/", line)
        assert page is not None and running.bootstrap in line
        with urllib.request.urlopen(page[0], timeout=LONG) as answer:
            assert answer.status == 200
        assert running.finish() == 0
        with pytest.raises(OSError):
            urllib.request.urlopen(page[0], timeout=LONG)


def test_each_node_can_be_watched(tmp_path: Path) -> None:
    with up(tmp_path, "-n", "2", "--explorer", "0") as it:
        it.await_ready()
        found = re.search(r"kbroker watch -b (\S+)", it.errors)
        assert found is not None and len(found[1].split(",")) == 2
        words = ["watch", "-b", found[1], "--count", "1", "--json", "--api", "DescribeCluster"]
        command = [sys.executable, "-m", "kbroker", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ROOT}) as watcher:
            while watcher.poll() is None:
                with Client(it.bootstrap) as client:
                    describe_cluster(client)
            assert watcher.stdout is not None and b'"api": "DescribeCluster"' in watcher.stdout.read()
        assert it.finish() == 0


def test_nodes_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        running.await_ready()
        processes = running.nodes()
        running.process.kill()
        assert not psutil.wait_procs(list(processes.values()), timeout=LONG)[1]
        assert "stopping on the end of standard input" in (tmp_path / "data" / "node-1.log").read_text()


def test_a_node_whose_process_is_being_made_is_stopped_too(tmp_path: Path) -> None:
    plans = plan_cluster(1, tmp_path / "data", port=0)
    prepare(plans)
    supervisor = Supervisor(plans, restart=False)

    async def main() -> None:
        with trio.fail_after(SHORT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor.run)
                while not supervisor.nodes[0].starts:
                    await trio.lowlevel.checkpoint()
                os.kill(os.getpid(), signal.SIGTERM)

    trio.run(main)
    assert not supervisor.failed


def test_a_cluster_that_cannot_start_is_one_readable_line(tmp_path: Path) -> None:
    with up(tmp_path, "-n", "2", "-o", "auto.create.topics.enable=maybe") as running:
        assert running.process.wait(LONG) == 1
        assert running.errors.startswith("kbroker: ") and "auto.create.topics.enable" in running.errors
        assert running.errors.count("\n") == 1
    with up(tmp_path, "-n", "2", "-o", "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2") as running:
        assert running.process.wait(LONG) == 1
        assert re.search(r"node \d did not start: exit code 1; its log, .*node-\d.log, ends with: ", running.errors)


def test_a_port_that_is_in_use_is_one_line(tmp_path: Path) -> None:
    """The nodes that were about to start with it are not told of."""
    with socket.socket() as taken:
        first = free_ports(6, in_row=True)[0]
        taken.bind(("127.0.0.1", first + 1))
        taken.listen()
        with up(tmp_path, "-n", "3", "--port", str(first)) as running:
            assert running.process.wait(LONG) == 1
            assert re.search(rf"node 2 did not start: .*cannot listen on 127.0.0.1:{first + 1}: ", running.errors)
            assert running.errors.count("\n") == 1


def test_what_the_table_shows(tmp_path: Path) -> None:
    from kbroker.tools.cli.cluster_plan import plan_cluster

    nodes = [Node(plan) for plan in plan_cluster(4, tmp_path)]
    for node in nodes:
        node.enter(State.SERVING)
    nodes[2].enter(State.DEAD)
    nodes[2].how = "SIGKILL"
    brokers = [ClusterBroker(number, "a", 1, None, number == 3) for number in (1, 2, 3, 4)]
    entries = [(1, (1, 2, 3), (1, 2)), (2, (2, 3, 1), (2, 1)), (None, (3,), (3,))]
    partitions = [PartitionDescription(number, each[0], 0, *each[1:], ()) for number, each in enumerate(entries)]
    topics = [TopicDescription("t", ZERO_UUID, False, tuple(partitions))]
    counts = replica_counts(topics, brokers)
    cluster = ClusterView(0, "id", brokers, Quorum(2), topics=topics, counts=counts)
    now = time.monotonic() + 200
    rows = [row(node, cluster, now) for node in nodes]
    assert rows[0] == (["1", "127.0.0.1:9092", "-", "serving", "3m", "voter", "1", "2", "0", "0"], "green")
    assert rows[1][0][5] == "active"
    assert rows[2][0][3:] == ["dead (SIGKILL)", "3m", "voter", "0", "3", "2", "0"] and rows[2][1] == "bold red"
    assert rows[3][0][5] == "-", "a broker only"
    assert caption(cluster) == "1 topics, 3 partitions, 2 under-replicated, 1 WITHOUT A LEADER"
    assert caption(None) == "the cluster does not answer"
    assert row(nodes[0], None, now)[0][6:9] == ["-", "-", "-"]
    assert table(rows, "below").row_count == 4


@pytest.mark.everything
def test_a_secure_cluster_lets_in_only_its_users(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    security = tmp_path / "data" / "security"

    def command(user: str, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "kbroker", *words, "--timeout", "60" if user else "10"]
        line += ["--command-config", str(security / f"{user}.properties")] if user else ["-b", running.bootstrap]
        return subprocess.run(line, capture_output=True, text=True, timeout=LONG, env=os.environ | {"PYTHONPATH": ROOT})

    for start in ("first", "second"):
        with up(tmp_path, "-n", "2", "--secure") as running:
            running.await_ready()
            assert running.process.stdout is not None
            told = [running.process.stdout.readline() for _ in range(4)]
            assert str(Path("data/security/client.properties")) in told[0] and "admin.properties" in told[1]
            # Whichever node is asked hears of the last one's admission a moment later than that one.
            eventually(lambda: command("admin", "cluster", "health", "--complete").returncode == 0, "healthy")
            rdkafka = dict(
                line.split("=", 1) for line in (security / "client.librdkafka.properties").read_text().splitlines()
            )
            assert "client.librdkafka.properties" in told[2]
            assert AdminClient({**rdkafka}).list_topics(timeout=LONG).cluster_id
            first = re.fullmatch("for example: kbroker (.*) --command-config .*admin.properties\n", told[3])
            assert first is not None and command("admin", *first[1].split()).stderr == ""
            if start == "first":
                assert command("client", "topic", "create", "orders", "-p", "3").returncode == 0
                assert "CLUSTER_AUTHORIZATION_FAILED" in command("client", "acl", "list").stderr
                assert command("admin", "acl", "delete", "--allow", "client", "--yes").returncode == 0
            else:  # who has been given its rights once, and lost them, is not given them again
                assert command("admin", "acl", "list", "--json").stdout == "[]\n"
                assert "orders" in command("admin", "topic", "list").stdout
                assert "is security.protocol right?" in command("", "topic", "list").stderr
            assert running.finish() == 0
    password = re.search('password="([^"]{20,})"', (security / "admin.properties").read_text())
    assert password is not None
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o077:
            assert password[1].encode() not in path.read_bytes(), path
    with up(tmp_path) as running:
        assert running.process.wait(LONG) == 1
        assert (
            running.errors
            == "kbroker: data belongs to kbroker up --secure --data data: take that command, or another directory\n"
        )
