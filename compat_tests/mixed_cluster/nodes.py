"""A node of a cluster, of either kind: the same properties, the same ways to start, stop and look."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from compat_tests.apache_kafka import SERVER_VERSION, ApacheKafka, random_uuid
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

ROOT = Path(__file__).resolve().parents[2]
COMBINED = "broker,controller"
BROKER = "broker"

PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    # No number of batches fills it, and many are larger.
    "replica.fetch.max.bytes": "20011",
    # Who is killed is missed soon, and who stands still for a moment is not.
    "broker.session.timeout.ms": "20000",
    "broker.heartbeat.interval.ms": "500",
    # A node that is slow, or stands still for a test, stays in sync; one that is missed leaves with its session.
    "replica.lag.time.max.ms": "300000",
    "group.share.record.lock.duration.ms": "60000",
    # Leaders move when a test has them move.
    "auto.leader.rebalance.enable": "false",
}

NO_PROPERTIES: Mapping[str, str] = {}

SNAPSHOT_SOON: Mapping[str, str] = {"metadata.log.max.record.bytes.between.snapshots": "1024"}
"""A snapshot after the first few changes: for those who vote, so that one who only follows keeps what it fetched."""


class Node(Protocol):
    """A node of a cluster, of kbroker or of Apache Kafka."""

    node_id: int
    port: int
    controller_port: int
    directory: Path
    cluster_id: str

    def start(self) -> None:
        """Format if needed, start unless it runs, and wait until it serves."""

    def stop(self) -> None:
        """Stop cleanly."""

    def kill(self) -> None:
        """SIGKILL, if it runs."""

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""

    def log(self) -> str:
        """The node's log since its start."""

    def fix_voters(self, voters: str) -> None:
        """Have it formatted and started with these ``controller.quorum.voters``, one of which it is."""


def bootstrap(node: Node) -> str:
    """host:port of a node's client listener."""
    return f"127.0.0.1:{node.port}"


def metadata_files(node: Node, suffix: str) -> list[Path]:
    """Files of the node's metadata log, by name: ``.log``, ``.checkpoint``."""
    return sorted((node.directory / "data" / "__cluster_metadata-0").glob(f"*{suffix}"))


def _format_options(join: Node | None, votes: bool) -> tuple[str, ...]:
    if join is None:
        return ("--standalone",)
    return ("--no-initial-controllers",) if votes else ()


def _properties(node: Node, join: Node | None, votes: bool) -> dict[str, str]:
    roles = COMBINED if join is None or votes else BROKER
    quorum_port = node.controller_port if join is None else join.controller_port
    client, controller = f"PLAINTEXT://127.0.0.1:{node.port}", f"CONTROLLER://127.0.0.1:{node.controller_port}"
    listeners = f"{client},{controller}" if "controller" in roles else client
    return {
        **PROPERTIES,
        **(SNAPSHOT_SOON if "controller" in roles else {}),
        "process.roles": roles,
        "node.id": str(node.node_id),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{quorum_port}",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.directory / "data"),
        **({"controller.quorum.auto.join.enable": "true"} if votes else {}),
    }


def _with_fixed_voters(properties: Mapping[str, str], voters: str) -> dict[str, str]:
    dynamic = ("controller.quorum.bootstrap.servers", "controller.quorum.auto.join.enable")
    kept = {name: value for name, value in properties.items() if name not in dynamic}
    return {**kept, "controller.quorum.voters": voters}


class JvmNode:
    """Apache Kafka 4.4.0; with `join`, a broker that follows the quorum of that node, or joins it as a voter."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        join: Node | None = None,
        *,
        votes: bool = False,
        properties: Mapping[str, str] = NO_PROPERTIES,
        version: str = SERVER_VERSION,
    ) -> None:
        self.node_id, self.directory = node_id, directory
        self.port, self.controller_port = free_ports(2)
        self.cluster_id = join.cluster_id if join else random_uuid()
        self._node = ApacheKafka(
            version=version,
            directory=directory,
            port=self.port,
            controller_port=self.controller_port,
            node_id=node_id,
            cluster_id=self.cluster_id,
            format_options=_format_options(join, votes),
            properties={**_properties(self, join, votes), **properties},
            heap=("-Xmx512M",),
        )

    def start(self) -> None:
        if self._node.process is None:
            self._node.start()

    def upgrade(self) -> None:
        """Stop, and start with the latest release."""
        self.stop()
        self._node.version = SERVER_VERSION
        self.start()

    def stop(self) -> None:
        self._node.stop(timeout=LONG)

    def kill(self) -> None:
        self._node.kill()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._node.pid, number)

    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def fix_voters(self, voters: str) -> None:
        # An empty value leaves out a property that the node has by itself.
        dropped = {"controller.quorum.bootstrap.servers": ""}
        self._node.properties = {**_with_fixed_voters(self._node.properties, voters), **dropped}
        self._node.format_options = ()


class KbrokerNode:
    """kbroker, by its command; with `join`, a broker that follows the quorum of that node, or joins it as a voter."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        join: Node | None = None,
        *,
        votes: bool = False,
        properties: Mapping[str, str] = NO_PROPERTIES,
        release: str = "",
        code: Path = ROOT,
    ) -> None:
        """``release`` is the one whose features a new cluster begins with; the latest by default.

        ``code`` is the directory of the package that runs, from the next start on.
        """
        self.code = code
        self.node_id, self.directory = node_id, directory
        self.port, self.controller_port = free_ports(2)
        self.cluster_id = join.cluster_id if join else random_uuid()
        self._properties = {**_properties(self, join, votes), **properties}
        self._format_options = (*_format_options(join, votes), *(("-r", release) if release else ()))
        self._log = directory / "kbroker.log"
        self._config = directory / "server.properties"
        self._process: subprocess.Popen[str] | None = None

    def _command(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-m", "kbroker", *arguments], {**os.environ, "PYTHONPATH": str(self.code)}

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._config.write_text("".join(f"{name}={value}\n" for name, value in self._properties.items()))
        command, environment = self._command(
            "format", "-t", self.cluster_id, "-c", str(self._config), *self._format_options
        )
        subprocess.run(command, env=environment, check=True, timeout=LONG, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        if self._process is not None:
            return
        if not self._config.exists():
            self._format()
        command, environment = self._command("start", "-c", str(self._config))
        with open(self._log, "wb") as errors:
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        assert process.stdout is not None
        watchdog = threading.Timer(300, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                if line.startswith("kbroker ready:"):
                    return
        finally:
            watchdog.cancel()
        raise AssertionError(f"kbroker did not start:\n{self.log()[-3000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            code = self._process.wait(LONG)
            self._forget()
            assert code == 0, self.log()[-3000:]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _forget(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def fix_voters(self, voters: str) -> None:
        self._properties = _with_fixed_voters(self._properties, voters)
        self._format_options = ()


def remove(node: Node) -> None:
    """End the node and remove its data."""
    node.kill()
    shutil.rmtree(node.directory, ignore_errors=True)
