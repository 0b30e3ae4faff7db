"""kbroker start --cores as a user meets it: processes, stock clients, what is told, what is refused."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError
from kbroker.tools.cli.cluster_nodes import plan_drain
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.cli.core_supervisor import STATE_FILE
from kbroker.tools.cli.node_per_core import check_left_cores, core_count, usable_processors
from kbroker.tools.cli.start import development_properties, with_controller_listener
from kbroker.types import TopicPartition as Partition
from tests.cli_command import kbroker
from tests.patience import LONG, eventually

ROOT = str(Path(__file__).parents[2])
pytestmark = pytest.mark.slow


class Machine:
    """The command while it runs."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self.directory = directory

    def await_ready(self) -> list[str]:
        """The addresses of the ready line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("kbroker ready: "), self.log
        return line.removeprefix("kbroker ready: ").strip().split(",")

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def pid(self, number: int) -> int:
        """The process of a node, which is there again after its death."""
        found: list[int] = []

        def is_there() -> bool:
            nodes = json.loads((self.directory / "data" / "kbroker-cores.json").read_text())["nodes"]
            found[:] = [node["pid"] for node in nodes if node["id"] == number and node["pid"] is not None]
            return bool(found)

        eventually(is_there, f"node {number} runs")
        return found[0]

    def finish(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LONG)


@contextmanager
def machine(
    tmp_path: Path, *words: str, command: str = "start", environment: Mapping[str, str] | None = None
) -> Iterator[Machine]:
    with (tmp_path / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", command, *words],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": ROOT, **(environment or {})},
        )
    assert process.stdout is not None
    try:
        yield Machine(process, tmp_path)
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for each in (process, *children):
            each.kill()
        process.wait()
        process.stdout.close()


def two_cores() -> list[str]:
    """Options for two nodes at ports that nobody else is given."""
    return ["--cores", "2", "--data-dir", "data", "--port", str(free_ports(2, in_row=True)[0])]


def create(bootstrap: str, name: str, partitions: int, replicas: int = 1) -> dict[int, int]:
    """Partition -> its leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(LONG)
    found: dict[int, int] = {}

    def are_led() -> bool:
        topic = admin.list_topics(name, timeout=LONG).topics[name]
        found.update((number, partition.leader) for number, partition in topic.partitions.items())
        return len(found) == partitions and min(found.values()) > 0

    eventually(are_led, "leaders")
    return found


def records(bootstrap: str, topic: str, partitions: int, least: int) -> list[bytes]:
    """The records of a topic, at least so many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[bytes] = []

    def have_come() -> bool:
        found.extend(each.value() or b"" for each in consumer.consume(1000, 0.2) if each.error() is None)
        return len(found) >= least

    eventually(have_come, "records")
    consumer.close()
    return found


def test_clients_find_all_nodes_by_the_first_and_all_stop_in_good_order(tmp_path: Path) -> None:
    with machine(tmp_path, *two_cores(), "-o", "default.replication.factor=2") as running:
        first, second = running.await_ready()
        assert "default.replication.factor=2: UNLESS THERE ARE OTHER MACHINES, this one has all replicas" in running.log
        assert int(second.rpartition(":")[2]) == int(first.rpartition(":")[2]) + 1
        leaders = create(first, "t", 4)
        assert sorted(leaders.values()) == [1, 1, 2, 2]
        brokers = AdminClient({"bootstrap.servers": first}).list_topics(timeout=LONG).brokers
        assert sorted(f"{each.host}:{each.port}" for each in brokers.values()) == [first, second]
        producer = Producer({"bootstrap.servers": first})
        for number in range(100):
            producer.produce("t", b"%d" % number, partition=number % 4)
        assert producer.flush(LONG) == 0
        assert sorted(records(first, "t", 4, 100)) == sorted(b"%d" % number for number in range(100))
        consumer = Consumer({"bootstrap.servers": second, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        polled: list[Message | None] = []

        def has_come() -> bool:
            polled.append(consumer.poll(1.0))
            return polled[-1] is not None and polled[-1].error() is None

        eventually(has_come, "a group has a coordinator")
        consumer.close()
        described = kbroker("topic", "describe", "__consumer_offsets", "-b", second, "--json")
        assert {len(each["replicas"]) for each in json.loads(described.stdout)[0]["partition_details"]} == {1}
        create(second, "twice", 1, replicas=-1)
        eventually(lambda: "topic twice has 2 replicas, and ALL OF THEM ARE ON ONE MACHINE" in running.log, running.log)
        supervisor = psutil.Process(running.process.pid)
        assert supervisor.memory_info().rss < 25 << 20, "it is idle, and has to be small"
        children = supervisor.children(recursive=True)
        assert running.finish() == 0
        assert not any(each.is_running() for each in children)
    stops = re.findall(r"\[node (\d)\] kbroker.node.broker: node \d has stopped", running.log)
    assert stops == ["2", "1"], running.log
    assert not (tmp_path / "data" / "kbroker-cores.json").exists()


def test_a_node_that_is_killed_is_started_again_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with machine(tmp_path, *two_cores()) as running:
        first, _ = running.await_ready()
        create(first, "t", 4)
        acknowledged: set[bytes] = set()
        producer = Producer({"bootstrap.servers": first, "acks": "all", "linger.ms": 1})

        def note(error: object, message: Message) -> None:
            if error is None:
                acknowledged.add(message.value() or b"")

        ended = threading.Event()

        def load() -> None:
            number = 0
            while not ended.is_set():
                producer.produce("t", b"%d" % number, partition=number % 4, on_delivery=note)
                number += 1
                producer.poll(0.002)

        loading = threading.Thread(target=load)
        loading.start()
        try:
            for number in (2, 1):
                before = len(acknowledged)
                eventually(lambda before=before: len(acknowledged) > before + 200, "records are acknowledged")  # type: ignore[misc]
                os.kill(running.pid(number), signal.SIGKILL)
                eventually(lambda number=number: f"node {number} serves again" in running.log, running.log)  # type: ignore[misc]
        finally:
            ended.set()
            loading.join()
        assert producer.flush(LONG) == 0
        assert "node 2 died: SIGKILL; it is started again in 0 s" in running.log
        assert acknowledged <= set(records(first, "t", 4, len(acknowledged)))
        assert running.finish(signal.SIGINT) == 0


def test_a_port_that_is_in_use_is_named_and_no_node_stays(tmp_path: Path) -> None:
    options = two_cores()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(options[-1]) + 1))
        taken.listen()
        with machine(tmp_path, *options) as running:
            assert running.process.wait(LONG) == 1
    assert f"cannot listen on 127.0.0.1:{int(options[-1]) + 1}: the port is in use" in running.log
    assert "node 2 did not start: exit code 1" in running.log


def test_nodes_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with machine(tmp_path, *two_cores()) as running:
        running.await_ready()
        children = psutil.Process(running.process.pid).children()
        running.process.kill()
        assert not psutil.wait_procs(children, timeout=LONG)[1]
        assert (tmp_path / "data" / "kbroker-cores.json").exists()
        assert "no nodes of" in kbroker("cluster", "processes", str(tmp_path / "data")).stderr, (
            "what is left says nothing"
        )
    assert running.log.count("has stopped\n") == 2, "in good order"


@pytest.mark.everything
def test_the_way_to_more_cores_and_back(tmp_path: Path) -> None:
    options = two_cores()
    alone = options[2:]
    with machine(tmp_path, *alone) as running:
        [first] = running.await_ready()
        create(first, "old", 2)
        producer = Producer({"bootstrap.servers": first})
        producer.produce("old", b"kept", partition=1)
        assert producer.flush(LONG) == 0
        assert running.finish() == 0
    with machine(tmp_path, *options) as running:
        running.await_ready()
        assert records(first, "old", 2, 1) == [b"kept"], "the directory is the first node's"
        create(first, "new", 2)
        producer = Producer({"bootstrap.servers": first})
        for partition in (0, 1):
            producer.produce("new", b"%d" % partition, partition=partition)
        assert producer.flush(LONG) == 0
        assert running.finish() == 0
    for words in (alone, ["--cores", "1", *alone]):
        with machine(tmp_path, *words) as running:
            assert running.process.wait(LONG) == 1
        assert re.search(
            "data/core2 has [0-9]+ partitions of node 2, which --cores 1 does not start: start with --cores 2",
            running.log,
        ), running.log
    with machine(tmp_path, *options) as running:
        running.await_ready()
        plan = kbroker("cluster", "drain", "2", "-b", first, "--dry-run").stdout
        moves = json.loads(kbroker("cluster", "drain", "2", "-b", first, "--dry-run", "--json").stdout)["moves"]
        assert list(moves.values()) == [{"before": [2], "after": [1]}] * plan.count("\n")
        assert len(re.findall("^new-[01]: 2 -> 1$", plan, re.MULTILINE)) == 1, plan
        done = kbroker("cluster", "drain", "2", "-b", first, "--yes")
        count = plan.count("\n")
        assert done.stdout == f"broker 2 has nothing any more: {count} partitions were moved\n", done.stderr
        assert set(create(first, "later", 3).values()) == {1}, "it gets no new ones"
        assert "broker 2 serves: stop it first" in kbroker("cluster", "unregister", "2", "-b", first, "--yes").stderr
        assert running.finish() == 0
    with machine(tmp_path, *alone) as running:
        assert running.await_ready() == [first]
        assert sorted(records(first, "new", 2, 2)) == [b"0", b"1"]
        assert records(first, "old", 2, 1) == [b"kept"]
        done = kbroker("cluster", "unregister", "2", "-b", first, "--yes", "--json")
        assert json.loads(done.stdout) == {"unregistered": 2}, done.stderr
        assert running.finish() == 0


def test_partitions_without_a_record_are_not_left_behind(tmp_path: Path) -> None:
    options = two_cores()
    with machine(tmp_path, *options) as running:
        [first, _] = running.await_ready()
        assert sorted(create(first, "empty", 6).values()) == [1, 1, 1, 2, 2, 2]
        assert running.finish() == 0
    for name in (each for each in os.listdir(tmp_path / "data/core2") if each.startswith("empty-")):
        (tmp_path / "data/core2" / name).rename(tmp_path / name)  # a directory is made by the first record
    with machine(tmp_path, *options[2:]) as running:
        assert running.process.wait(LONG) == 1
    assert "data/core2 has 3 partitions of node 2, which --cores 1 does not start" in running.log


def test_directories_tell_what_would_be_left_where_the_metadata_log_is_lost(tmp_path: Path) -> None:
    (tmp_path / "core2/t-0").mkdir(parents=True)
    config = BrokerConfig.from_properties(with_controller_listener(development_properties(str(tmp_path))))
    with pytest.raises(FatalError, match="core2 has 1 partitions of node 2, which --cores 1 does not start"):
        check_left_cores(argparse.Namespace(core=None, cores=None), config)


def test_nodes_are_shown_and_restarted_one_by_one(tmp_path: Path) -> None:
    with machine(tmp_path, *two_cores()) as running:
        first, _ = running.await_ready()
        before = {running.pid(1), running.pid(2)}
        shown = json.loads(kbroker("cluster", "processes", str(tmp_path / "data"), "--json").stdout)
        assert shown["pid"] == running.process.pid and [node["serves"] for node in shown["nodes"]] == [True, True]
        told = kbroker("cluster", "restart", str(tmp_path / "data"), "-b", first)
        assert told.stdout == "node 2 was restarted\nnode 1 was restarted\n", told.stderr
        assert before.isdisjoint({running.pid(1), running.pid(2)})
        told = kbroker("cluster", "restart", str(tmp_path / "data"), "-b", first, "--node", "2", "--json")
        assert json.loads(told.stdout) == {"restarted": [2]}, told.stderr
        table = kbroker("cluster", "processes", str(tmp_path / "data")).stdout
        assert re.findall(r"serving +([0-9]+) ", table) == ["2", "3"], table
        assert running.finish() == 0
    assert "died" not in running.log
    told = kbroker("cluster", "processes", str(tmp_path / "data"))
    assert told.returncode == 1 and "no nodes of" in told.stderr


def test_one_page_has_the_metrics_of_all_nodes(tmp_path: Path) -> None:
    pytest.importorskip("h11")
    port = free_ports(2, in_row=True)[0]
    with machine(tmp_path, *two_cores(), "--metrics", str(port)) as running:
        first, _ = running.await_ready()
        create(first, "t", 4)

        def page(path: str = "/metrics") -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG) as answer:
                return str(answer.read().decode())

        leads = 'kafka_server_replicamanager_leadercount{node="%d"} 2\n'
        eventually(lambda: leads % 1 + leads % 2 in page(), "values of a family stand together")
        names = re.findall(r"^# TYPE (\S+)", page(), re.MULTILINE)
        assert len(names) == len(set(names))
        assert 'kafka_broker_info{node="2",address=' in page() and 'other_node_up{node="1",other="2"} 1' in page()
        assert "node=" not in page("/metrics?alone=1")
        os.kill(running.pid(2), signal.SIGSTOP)
        try:
            assert 'other_node_up{node="1",other="2"} 0' in page()
        finally:
            os.kill(running.pid(2), signal.SIGCONT)
        assert running.finish() == 0


def test_a_stock_file_works_as_it_is(tmp_path: Path) -> None:
    port = free_ports(3, in_row=True)[0]
    (tmp_path / "server.properties").write_text(
        f"""
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:{port + 1}
        listeners=PLAINTEXT://:{port},CONTROLLER://:{port + 1}
        advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1}
        controller.listener.names=CONTROLLER
        log.dirs={tmp_path / "data"}
        offsets.topic.replication.factor=1
        """
    )
    words = ["--cores", "2", "-c", "server.properties"]
    with machine(tmp_path, *words) as running:
        assert running.process.wait(LONG) == 1
    assert (
        running.log == f"kbroker: no meta.properties in {tmp_path / 'data'}: format the node first (kbroker format)\n"
    )
    assert kbroker("format", "-t", "c", "--standalone", "-c", str(tmp_path / "server.properties")).returncode == 0
    with machine(tmp_path, *words) as running:
        assert running.await_ready() == [f"localhost:{port}", f"localhost:{port + 2}"], "the controller has the next"
        assert sorted(create(f"localhost:{port}", "t", 2).values()) == [1, 2]
        assert running.finish() == 0


def test_a_container_has_cores(tmp_path: Path) -> None:
    port, controller = free_ports(2, in_row=True)[0], free_ports(1)[0]
    environment = {
        "KBROKER_CORES": "2",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
    }
    with machine(tmp_path, command="container", environment=environment) as running:
        addresses = running.await_ready()
        assert sorted(create(addresses[0], "t", 2).values()) == [1, 2]
        assert running.finish() == 0
    assert running.log.count("Kafka Server started") == 1, "what others wait for is said once"


def test_a_container_whose_variable_is_empty_is_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KBROKER_CORES", "")  # as compose files make it of a variable that nobody has set
    assert "process.roles" in kbroker("container", "--print").stdout


@pytest.mark.everything
def test_machines_of_a_cluster_have_no_two_replicas_of_a_partition(tmp_path: Path) -> None:
    port = str(free_ports(5, in_row=True)[0])
    with machine(tmp_path, "-n", "2", "--cores", "2", "--data", "data", "--port", port, command="up") as running:
        first, second = running.await_ready()
        assert int(second.rpartition(":")[2]) == int(port) + 2
        assert sorted(create(first, "t", 4, replicas=2).values()) == [1, 2, 3, 4]
        topic = AdminClient({"bootstrap.servers": first}).list_topics("t", timeout=LONG).topics["t"]
        machines = [{(replica - 1) // 2 for replica in each.replicas} for each in topic.partitions.values()]
        assert machines == [{0, 1}] * 4
        assert running.finish() == 0
    assert "ON ONE MACHINE" not in (tmp_path / "data" / "node-1.log").read_text()


SUPERVISED = """
import logging, pathlib, sys
from kbroker.tools.cli.core_supervisor import CoreNode, CoreSupervisor

lives = "print('kbroker ready: a:1', flush=True); import time; time.sleep(600)"
dies = "print('kbroker ready: a:2', flush=True); import os; os.kill(os.getpid(), 9)"
stops = '''
import pathlib, signal, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("told").touch())
print("kbroker ready: a:3", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
'''
commands = {"lives": lives, "dies": dies, "stops": stops}
nodes = [CoreNode(number, [sys.executable, "-c", commands[word]]) for number, word in enumerate(sys.argv[1:], 1)]
logging.basicConfig(level="INFO")
sys.exit(CoreSupervisor(nodes, pathlib.Path("."), pause=0.01).run())
"""


@contextmanager
def supervised(tmp_path: Path, *words: str) -> Iterator[Machine]:
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISED, *words],
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": ROOT},
        )
    try:
        yield Machine(process, tmp_path)  # type: ignore[arg-type]
    finally:
        (tmp_path / "go").touch()
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", [("dies", "lives"), ("lives", "dies")])
def test_a_node_that_dies_again_and_again_is_given_up_loudly(tmp_path: Path, words: tuple[str, str]) -> None:
    with supervised(tmp_path, *words) as running:
        if words[0] == "dies":
            assert running.process.wait(LONG) == 1
            assert "node 1 died 5 times within a minute: all nodes are stopped" in running.log
        else:
            eventually(lambda: "node 2 died 5 times within a minute and is GIVEN UP" in running.log, running.log)
            assert running.process.poll() is None, "the other serves on"
            assert running.finish() == 1


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_only_ctrl_c_kills_a_node_that_is_stopping(tmp_path: Path, again: signal.Signals) -> None:
    with supervised(tmp_path, "stops") as running:
        eventually((tmp_path / STATE_FILE).exists, "the node serves")
        running.process.terminate()
        eventually((tmp_path / "told").exists, "the node is told to stop")
        if again is signal.SIGINT:
            assert running.finish(again) == 1
            return
        running.process.send_signal(again)
        eventually(lambda: "SIGTERM again" in running.log, "it has heard that")
        (tmp_path / "go").touch()
        assert running.process.wait(LONG) == 0


def test_auto_is_the_processors_that_may_be_used(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    assert 1 <= usable_processors(quota) <= (os.cpu_count() or 1)
    quota.write_text("max 100000\n")
    assert usable_processors(quota) == usable_processors(tmp_path / "none")
    quota.write_text("50000 100000\n")
    assert usable_processors(quota) == 1, "a container with half a processor"
    assert core_count("auto") == usable_processors() and core_count("3") == 3
    assert "--cores" in kbroker("start", "--cores", "0").stderr


def test_a_drained_broker_leaves_replicas_to_other_racks_first() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    replicas = {Partition("t", 0): [2], Partition("t", 1): [3, 2], Partition("t", 2): [2, 1], Partition("t", 3): [1, 3]}
    assert plan_drain(replicas, racks, 2) == {
        Partition("t", 0): [1],
        Partition("t", 1): [3, 1],
        Partition("t", 2): [4, 1],
    }
    # Broker 5 takes nothing new, as one that is starting again: its rack has a replica all the same.
    assert plan_drain({Partition("t", 0): [2, 5]}, {2: "a", 3: "c", 4: "d", 5: "c"}, 2, closed=[5]) == {
        Partition("t", 0): [4, 5]
    }
    with pytest.raises(FatalError, match=r"t-2 has 2 .*: have fewer, kbroker topic move t --brokers 1 -r 1$"):
        plan_drain({Partition("t", 2): [2, 1]}, {1: "a", 2: "a"}, 2)
    with pytest.raises(FatalError, match=r"t-0 has 1 .*: start one, or .* kbroker config unset broker ID cordoned"):
        plan_drain({Partition("t", 0): [2]}, {2: "a"}, 2)
