"""The nodes that are damaged, kbroker's and Apache Kafka's: they start at once, and end by SIGKILL or in good order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.apache_kafka import ApacheKafka, random_uuid
from compat_tests.brokers import LEADERS_STAY
from kbroker.tools.cli.cluster_plan import READY, NodePlan, cluster_properties, free_ports, plan_cluster, prepare
from tests.patience import LONG, SHORT

ROOT = Path(__file__).parent.parent.parent
PROPERTIES = {
    **LEADERS_STAY,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "log.index.size.max.bytes": "65536",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}
"""Few files, and small ones, so that a try is cheap; and a snapshot of the metadata."""


@dataclass
class Node:
    """A node that is started on its directory again and again; `ready` is what it says once it serves."""

    data_dir: Path
    log_file: Path
    start: Callable[[], subprocess.Popen[bytes]]
    ready: str
    process: subprocess.Popen[bytes] | None = None

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, timeout: float) -> None:
        """Return once the process has ended."""
        if self.process is not None:
            self.process.wait(timeout)
            if self.process.stdin is not None:
                self.process.stdin.close()

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs."""
        return None if self.process is None else self.process.poll()

    @property
    def log(self) -> str:
        """All that the node has written since its start."""
        return self.log_file.read_text(errors="replace")


def _kbroker_node(plan: NodePlan) -> Node:
    def start() -> subprocess.Popen[bytes]:
        with plan.log_file.open("wb") as log:
            return subprocess.Popen(
                plan.command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    return Node(plan.directory, plan.log_file, start, READY)


def _apache_node(node: ApacheKafka) -> Node:
    def start() -> subprocess.Popen[bytes]:
        node.launch()
        assert node.process is not None
        return node.process

    node.format()
    return Node(node.data_dir, node.data_dir.parent / "server.log", start, "Kafka Server started")


class Nodes:
    """A node, or three of one cluster; `bootstrap` is their address."""

    def __init__(self, broker: str, count: int, directory: Path) -> None:
        self.count = count
        if broker == "kbroker":
            plans = plan_cluster(count, directory, port=0, properties=PROPERTIES)
            prepare(plans)
            self.bootstrap = ",".join(plan.address for plan in plans)
            self.nodes = [_kbroker_node(plan) for plan in plans]
            return
        cluster_id, ports = random_uuid(), free_ports(2 * count)
        controllers = [f"127.0.0.1:{port}" for port in ports[count:]]
        voters = ",".join(f"{index + 1}@{address}:{random_uuid()}" for index, address in enumerate(controllers))
        quorum = {"controller.quorum.bootstrap.servers": ",".join(controllers)}
        nodes = [
            ApacheKafka(
                directory=directory / str(index + 1),
                port=ports[index],
                controller_port=ports[count + index],
                node_id=index + 1,
                cluster_id=cluster_id,
                format_options=("--initial-controllers", voters),
                heap=("-Xmx512M",),
                properties={**quorum, **cluster_properties(count), **PROPERTIES},
            )
            for index in range(count)
        ]
        self.bootstrap = ",".join(node.bootstrap for node in nodes)
        self.nodes = [_apache_node(node) for node in nodes]

    def launch(self) -> None:
        """Start all nodes."""
        for node in self.nodes:
            node.process = node.start()

    def await_ready(self, limit: float) -> None:
        """Return once each node serves or has ended, or the time is over."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if all(node.code is not None or node.ready in node.log for node in self.nodes):
                return
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL of all."""
        for node in self.nodes:
            node.signal(signal.SIGKILL)
        for node in self.nodes:
            node.wait(SHORT)

    def stop(self, timeout: float = LONG) -> None:
        """Stop the nodes in good order, one after the other; who waits for a quorum that is no more is killed."""
        for index, node in enumerate(self.nodes):
            node.signal(signal.SIGTERM)
            last = self.count > 1 and index == self.count - 1
            try:
                node.wait(15 if last else timeout)
            except subprocess.TimeoutExpired:
                if not last:
                    raise
                node.signal(signal.SIGKILL)
                node.wait(SHORT)

    def save(self, directory: Path) -> None:
        """Copy what is in the nodes' log directories to `directory`, and what they have told."""
        for index, node in enumerate(self.nodes):
            _copy(node.data_dir, directory / str(index + 1))
            shutil.copy(node.log_file, directory / f"{index + 1}.log")

    def restore(self, directory: Path) -> None:
        """Put the log directories back as they were saved."""
        for index, node in enumerate(self.nodes):
            shutil.rmtree(node.data_dir)
            _copy(directory / str(index + 1), node.data_dir)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


class Reader:
    """The process of the clients. It is started again when it has ended."""

    def __init__(self, directory: Path) -> None:
        self._errors = directory / "reader.log"
        self._process: subprocess.Popen[str] | None = None

    def read_all(self, **arguments: Any) -> dict[str, Any] | str:
        """Returns what was seen, or how the process has ended meanwhile."""
        if self._process is None:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "compat_tests.damage.reader"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.close()
        return f"exit code {process.wait()}: {self._errors.read_text(errors='replace')[-1500:]}"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
