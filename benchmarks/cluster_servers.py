"""Clusters of three: the nodes of either broker, with the same ports, replication and properties.

What a topic needs (three replicas, two of them in sync) is set alike; all timeouts are the brokers' own.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import psutil

from benchmarks.servers import COMMON, ROOT, Server, ServerError
from compat_tests.apache_kafka import (
    SERVER_JVM_OPTIONS,
    SERVER_VERSION,
    TOOL_JVM_OPTIONS,
    java_command,
    random_uuid,
    tool,
)
from kbroker.client import Client, ClientError
from kbroker.client.nodes import describe_cluster, describe_quorum
from kbroker.tools.cli.cluster_plan import NodePlan, plan_cluster

NODES = 3
WAIT_SECONDS = 60


class ClusterServer(Server):
    """Three nodes, each a process. The figures of a cluster are the sums over its nodes."""

    root: ClassVar[Path] = ROOT
    """The checkout of kbroker; it does not matter to Apache Kafka."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[NodePlan] = []
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(plan.address for plan in self.plans)

    def start(self) -> None:
        if not self.plans:
            self.plans = plan_cluster(NODES, self.directory, port=0, properties=COMMON | self.more_properties)
            self.port = self.plans[0].port
            began = time.monotonic()
            self.format()
            self.format_seconds = time.monotonic() - began
        self.launched_at = time.monotonic()
        for plan in self.plans:
            self.start_node(plan.node_id)

    def format(self) -> None:
        """Write the nodes' properties, and make their directories ready."""
        raise NotImplementedError

    def command(self, plan: NodePlan) -> list[str]:
        """The command that runs a node."""
        raise NotImplementedError

    def await_port(self) -> None:
        """Wait until all nodes have been admitted."""

        def admitted(client: Client) -> bool:
            return len([each for each in describe_cluster(client).brokers if not each.fenced]) == NODES

        self.until(admitted, "not all nodes were admitted")

    def start_node(self, node_id: int) -> None:
        """Launch a node on its data."""
        plan = self.plans[node_id - 1]
        with plan.log_file.open("ab") as log:
            self._nodes[node_id] = subprocess.Popen(
                self.command(plan),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
            )

    def environment(self) -> dict[str, str]:
        """The environment of a command of the checkout."""
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        return os.environ | {"PYTHONPATH": path}

    def kill_node(self, node_id: int) -> None:
        """kill -9."""
        node = self._nodes.pop(node_id)
        node.kill()
        node.wait()

    def stop_node(self, node_id: int) -> None:
        """A controlled shutdown; returns when the process has ended."""
        node = self._nodes.pop(node_id)
        node.terminate()
        try:
            node.wait(30)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
            raise ServerError(f"node {node_id} of {self.name} did not stop within 30 s") from None

    def is_alive(self) -> bool:
        return len(self._nodes) == NODES and all(node.poll() is None for node in self._nodes.values())

    def halt(self) -> None:
        for node in self._nodes.values():
            node.terminate()
        deadline = time.monotonic() + 15
        for node in self._nodes.values():
            try:
                node.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self._nodes.clear()

    def kill(self) -> None:
        for node_id in list(self._nodes):
            self.kill_node(node_id)

    def log_tail(self) -> str:
        return "\n".join(
            f"node {plan.node_id}: {plan.log_file.read_text(errors='replace')[-700:]}"
            for plan in self.plans
            if plan.log_file.exists()
        )

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        try:
            for node in self._nodes.values():
                process = psutil.Process(node.pid)
                found += [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            raise ServerError(f"a node of {self.name} died") from None
        return found

    # --- Asking -----------------------------------------------------------------------------------------------------

    @contextmanager
    def client(self, timeout: float = 5.0) -> Iterator[Client]:
        """A client of the nodes that run."""
        running = ",".join(plan.address for plan in self.plans if plan.node_id in self._nodes)
        with Client(running, client_id="benchmark", timeout=timeout) as client:
            yield client

    def until(self, condition: object, what: str) -> None:
        """Ask until ``condition(client)`` holds. Raises ServerError."""
        assert callable(condition)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                with self.client() as client:
                    if condition(client):
                        return
            except ClientError:
                pass
            time.sleep(0.02)
        raise ServerError(f"{self.name}: {what} after {WAIT_SECONDS} s\n{self.log_tail()}")

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The leader's id, -1 without one."""
        with self.client() as client:
            [found] = client.refresh([topic])
            return next((int(e.leader_id) for e in found.partitions if e.partition_index == partition), -1)

    def controller(self) -> int:
        """The active controller's id."""
        with self.client() as client:
            return int(describe_quorum(client).topics[0].partitions[0].leader_id)

    def await_in_sync_of(self, topic: str, count: int) -> None:
        """Wait until each partition of a topic has so many replicas in sync."""

        def has_them(client: Client) -> bool:
            [found] = client.refresh([topic])
            return all(entry.leader_id >= 0 and len(entry.isr_nodes) == count for entry in found.partitions)

        self.until(has_them, f"{topic} has not {count} replicas in sync")

    def await_in_sync(self) -> None:
        """Wait until all nodes are back and every replica is in sync."""
        self.await_port()

        def whole(client: Client) -> bool:
            partitions = [entry for topic in client.refresh(None) for entry in topic.partitions]
            return all(entry.leader_id >= 0 and len(entry.isr_nodes) == NODES for entry in partitions)

        self.until(whole, "not all replicas are in sync")


def write_properties(plan: NodePlan) -> None:
    """Write a node's server.properties."""
    lines = [f"{name}={value}" for name, value in plan.properties.items()]
    plan.properties_file.write_text("\n".join(lines) + "\n")


class KbrokerCluster(ClusterServer):
    """Three nodes as `kbroker up` starts them."""

    name = "kbroker"

    def format(self) -> None:
        # By the checkout's own command: an earlier one may know only earlier levels of the features.
        cluster_id = random_uuid()
        for plan in self.plans:
            write_properties(plan)
            self._kbroker("format", "-t", cluster_id, "-c", str(plan.properties_file))

    def _kbroker(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "kbroker", *arguments]
        done = subprocess.run(command, env=self.environment(), cwd=self.directory, capture_output=True, text=True)
        if done.returncode:
            raise ServerError(f"{shlex.join(command)}: {done.stderr}")

    def command(self, plan: NodePlan) -> list[str]:
        return [sys.executable, "-m", "kbroker", "start", "-c", str(plan.properties_file)]


class ApacheCluster(ClusterServer):
    """Three combined nodes with the stock heap and JVM options."""

    name = "apache"

    def format(self) -> None:
        cluster_id = random_uuid()
        for plan in self.plans:
            write_properties(plan)
            tool(
                "kafka-storage",
                "format",
                "-t",
                cluster_id,
                "-c",
                str(plan.properties_file),
                check=True,
                version=SERVER_VERSION,
                jvm_options=TOOL_JVM_OPTIONS,
            )

    def command(self, plan: NodePlan) -> list[str]:
        return java_command(
            "kafka.Kafka",
            str(plan.properties_file),
            jvm_options=("-Xmx1G", "-Xms1G", *SERVER_JVM_OPTIONS),
            log_config="log4j2.properties",
            logs_dir=Path(f"{plan.directory}-logs"),
            version=SERVER_VERSION,
        )


CLUSTERS: dict[str, type[ClusterServer]] = {"kbroker": KbrokerCluster, "apache": ApacheCluster}


def earlier_cluster(checkout: Path) -> type[ClusterServer]:
    """Three nodes of another checkout, under the name ``before``."""
    return type("ClusterBefore", (KbrokerCluster,), {"name": "before", "root": checkout})
