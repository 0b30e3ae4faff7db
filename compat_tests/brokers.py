"""The brokers that the cases run against: kbroker, Apache Kafka 4.4.0, or one that is running already."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from compat_tests.apache_kafka import ApacheKafka, random_uuid
from compat_tests.shapes.shaped import SHAPES, ShapedCluster
from kbroker.client import Client, ClientError
from kbroker.testing import RunningCluster
from kbroker.tools.cli.cluster_plan import cluster_properties, free_ports
from tests.patience import LONG, SHORT

LEADERS_STAY = {"auto.leader.rebalance.enable": "false"}
"""Of several nodes: leaders move when a test has them move.

A test that restarts nodes leaves others in the lead. Within five minutes a controller would give it back by itself,
coordinators with it, in the midst of whatever test comes then: librdkafka may read a partition no more whose offset it
has asked of a coordinator that was (confluentinc/librdkafka#5586), and its admin client gives up.
"""


class BrokerError(Exception):
    """The broker under test did not start or stop as it should; the message holds what it printed."""


class Killable(Protocol):
    """A node of several."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> object:
        """Start it again, and wait until it serves."""


class ExternalBroker:
    """A broker that someone else runs."""

    name = "external"
    can_restart = False
    data_dir: Path | None = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def restart(self) -> None:
        raise BrokerError("not ours to restart")

    def stop(self) -> None:
        """Nothing to do."""


class ApacheBroker:
    """Apache Kafka 4.4.0, the judge."""

    name = "apache"
    can_restart = True

    def __init__(self, *options: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="compat-apache-"))
        properties = dict(option.split("=", 1) for option in ("group.initial.rebalance.delay.ms=0", *options))
        self._node = ApacheKafka(directory=self._directory, heap=("-Xmx768M",), properties=properties)
        self._node.start()
        self.bootstrap = self._node.bootstrap
        self.controllers = f"127.0.0.1:{self._node.controller_port}"
        self.data_dir: Path | None = self._node.data_dir

    def restart(self) -> None:
        self._node.stop()
        self._node.start()

    def crash(self) -> None:
        """SIGKILL, and start again."""
        self._node.kill()
        self._node.start()

    def stop(self) -> None:
        self._node.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class ApacheNodes:
    """Several nodes of Apache Kafka, with the settings that several of kbroker have."""

    name = "apache"
    can_restart = True
    data_dir: Path | None = None

    def __init__(self, count: int, *options: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="compat-apache-"))
        cluster_id, ports = random_uuid(), free_ports(2 * count)
        controllers = [f"127.0.0.1:{port}" for port in ports[count:]]
        voters = ",".join(f"{index + 1}@{address}:{random_uuid()}" for index, address in enumerate(controllers))
        self._nodes = [
            ApacheKafka(
                directory=self._directory / str(index + 1),
                port=ports[index],
                controller_port=ports[count + index],
                node_id=index + 1,
                cluster_id=cluster_id,
                format_options=("--initial-controllers", voters),
                heap=("-Xmx512M",),
                properties={
                    "controller.quorum.bootstrap.servers": ",".join(controllers),
                    "share.coordinator.state.topic.replication.factor": str(min(count, 3)),
                    **cluster_properties(count),
                    **LEADERS_STAY,
                    **dict(option.split("=", 1) for option in options),
                },
            )
            for index in range(count)
        ]
        self.bootstrap = ",".join(node.bootstrap for node in self._nodes)
        self._start()

    @property
    def nodes(self) -> Sequence[Killable]:
        """The nodes, to be killed and started one by one."""
        return self._nodes

    def _start(self) -> None:
        try:
            for node in self._nodes:
                node.launch()
            for node in self._nodes:
                node.await_started()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Every node, one after the other, in good order."""
        for node in self._nodes:
            node.stop(timeout=SHORT)
            node.start()
            self.await_in_sync()

    def await_in_sync(self, timeout: float = LONG) -> None:
        """Wait until each partition has a leader, and all of its replicas are in sync."""
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while not self._in_sync():
            if time.monotonic() > deadline:
                raise BrokerError(f"not all replicas are in sync after {timeout:.0f} s")
            pause.wait(0.1)

    def _in_sync(self) -> bool:
        try:
            with Client(self.bootstrap, timeout=SHORT) as client:
                partitions = [partition for topic in client.refresh(None) for partition in topic.partitions]
        except ClientError:
            return False
        return all(each.leader_id >= 0 and set(each.isr_nodes) == set(each.replica_nodes) for each in partitions)

    def crash(self) -> None:
        """SIGKILL of all nodes at once, and start again."""
        for node in self._nodes:
            node.kill()
        self._start()

    def stop(self) -> None:
        for node in self._nodes:
            node.kill()  # who stops last in good order waits for a quorum that is no more
        shutil.rmtree(self._directory, ignore_errors=True)


class KbrokerBroker:
    """kbroker by its command, as a user starts it; `options` are NAME=VALUE, {port} and {controller_port} filled in."""

    name = "kbroker"
    can_restart = True

    def __init__(self, *options: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="compat-kbroker-"))
        self.data_dir: Path | None = self._directory / "data"
        self._options = options
        self._port, self._controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.controllers = f"127.0.0.1:{self._controller_port}"
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def log(self) -> str:
        """The node's standard error so far."""
        return (self._directory / "stderr.log").read_text(errors="replace")

    def start(self, timeout: float = LONG) -> None:
        """Start the node and wait for the line that says it serves."""
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}"
        command = [
            sys.executable,
            "-m",
            "kbroker",
            "start",
            "-o",
            f"listeners={listeners}",
            "-o",
            f"log.dirs={self.data_dir}",
            "-o",
            "node.id=1",
        ]
        for option in self._options:
            filled = option.replace("{port}", str(self._port)).replace("{controller_port}", str(self._controller_port))
            command += ["-o", filled]
        with open(self._directory / "stderr.log", "ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self._directory,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            )
        assert self.process.stdout is not None
        watchdog = threading.Timer(timeout, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
            while line and not line.startswith("kbroker ready:"):
                line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            code = self.process.wait()
            raise BrokerError(f"kbroker did not start (exit code {code}):\n{self.log[-3000:]}")

    def _end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        try:
            code = self.process.wait(SHORT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise BrokerError(f"kbroker did not stop within {SHORT} s of SIGTERM:\n{self.log[-3000:]}") from None
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def crash(self) -> None:
        """SIGKILL, and start again."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.start()

    def restart(self) -> None:
        code = self._end()
        if code:
            raise BrokerError(f"kbroker ended with code {code} on SIGTERM:\n{self.log[-3000:]}")
        self.start()

    def stop(self) -> None:
        try:
            self._end()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


class KbrokerNodes:
    """Several nodes of kbroker, each a process; topics have three replicas where a client does not say otherwise."""

    name = "kbroker"
    can_restart = True
    data_dir: Path | None = None

    def __init__(self, count: int, *options: str) -> None:
        properties = dict(option.split("=", 1) for option in options)
        self.cluster = RunningCluster(count, {**LEADERS_STAY, **properties})
        try:
            self.cluster.start()
        except BaseException:
            self.cluster.kill()
            raise
        self.bootstrap = self.cluster.bootstrap_servers

    @property
    def nodes(self) -> Sequence[Killable]:
        """The nodes, to be killed and started one by one."""
        return self.cluster.nodes

    def await_in_sync(self) -> None:
        """Wait until each partition has a leader, and all of its replicas are in sync."""
        self.cluster.await_in_sync()

    def restart(self) -> None:
        """Every node, one after the other, in good order."""
        for node in self.cluster.nodes:
            code = node.stop()
            if code:
                raise BrokerError(f"node {node.id} ended with code {code} on SIGTERM:\n{node.log[-3000:]}")
            node.start()
            self.cluster.await_in_sync()

    def crash(self) -> None:
        """SIGKILL of all nodes at once, and start again."""
        self.cluster.kill()
        self.cluster.start()

    def stop(self) -> None:
        self.cluster.stop()


Broker = ApacheBroker | ApacheNodes | ExternalBroker | KbrokerBroker | KbrokerNodes | ShapedCluster


def broker_under_test(request: pytest.FixtureRequest, *options: str, default_nodes: int = 1) -> Iterator[Broker]:
    """The broker that the command line asks for, stopped afterwards; `options` are properties, as `name=value`.

    For a fixture `broker`. A folder with options of its own also needs a `bootstrap`: the session's is another's. A
    parameter of the fixture takes the place of what the command line says: "kbroker" or "apache", or how many nodes.
    """
    config = request.config
    bootstrap = config.getoption("--bootstrap")
    if bootstrap:
        yield ExternalBroker(bootstrap)
        return
    shape = config.getoption("--shape")
    node: Broker
    given = getattr(request, "param", None)
    name = given if isinstance(given, str) else config.getoption("--broker")
    nodes = given if isinstance(given, int) else config.getoption("--nodes") or default_nodes
    if name == "both":
        raise pytest.UsageError("--broker both is for compat_tests/spark")
    if name == "apache":
        if shape:
            raise pytest.UsageError("--shape is for kbroker")
        node = ApacheNodes(nodes, *options) if nodes > 1 else ApacheBroker(*options)
    elif shape:
        node = ShapedCluster(SHAPES[shape], *options)
    else:
        node = KbrokerNodes(nodes, *options) if nodes > 1 else KbrokerBroker(*options)
    try:
        yield node
    finally:
        node.stop()
