"""The nodes that are damaged, kbroker's and Apache Kafka's: they start at once, and end by SIGKILL or in good order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

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
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
"""Few files, and small ones, so that a try is cheap; and a snapshot of the metadata."""


class Node(Protocol):
    """A node that can be started on its directory again and again."""

    data_dir: Path

    def launch(self) -> None:
        """Start the process, with an empty log of its own."""

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""

    def wait(self, timeout: float) -> int:
        """Returns the exit code, once the process has ended."""

    @property
    def is_ready(self) -> bool:
        """Whether the node has said that it serves."""

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs."""

    @property
    def log(self) -> str:
        """All that the node has written since its start."""


class KbrokerNode:
    """A node as `kbroker start` starts it."""

    def __init__(self, plan: NodePlan) -> None:
        self._plan = plan
        self.data_dir = plan.directory
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        with self._plan.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                self._plan.command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        assert self._process is not None and self._process.stdin is not None
        code = self._process.wait(timeout)
        self._process.stdin.close()
        return code

    @property
    def is_ready(self) -> bool:
        return READY in self.log

    @property
    def code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        return self._plan.log_file.read_text(errors="replace")


class ApacheNode:
    """A node of Apache Kafka."""

    def __init__(self, node: ApacheKafka) -> None:
        self._node = node
        self.data_dir = node.data_dir

    def launch(self) -> None:
        self._node.launch()

    def signal(self, number: int) -> None:
        if self._node.process is not None and self._node.process.poll() is None:
            self._node.process.send_signal(number)

    def wait(self, timeout: float) -> int:
        assert self._node.process is not None
        return self._node.process.wait(timeout)

    @property
    def is_ready(self) -> bool:
        return "Kafka Server started" in self.log

    @property
    def code(self) -> int | None:
        return None if self._node.process is None else self._node.process.poll()

    @property
    def log(self) -> str:
        assert self._node.directory is not None
        return (self._node.directory / "server.log").read_text(errors="replace")


class Nodes:
    """One node or three; `bootstrap` is their address."""

    def __init__(self, broker: str, count: int, directory: Path) -> None:
        self.count = count
        self.nodes: Sequence[Node]
        if broker == "kbroker":
            plans = plan_cluster(count, directory, port=0, properties=PROPERTIES)
            prepare(plans)
            self.bootstrap = ",".join(plan.address for plan in plans)
            self.nodes = [KbrokerNode(plan) for plan in plans]
            return
        cluster_id, ports = random_uuid(), free_ports(2 * count)
        controllers = [f"127.0.0.1:{port}" for port in ports[count:]]
        voters = ",".join(f"{index + 1}@{address}:{random_uuid()}" for index, address in enumerate(controllers))
        settings = {
            "controller.quorum.bootstrap.servers": ",".join(controllers),
            **cluster_properties(count),
            **PROPERTIES,
        }
        nodes = [
            ApacheKafka(
                directory=directory / str(index + 1),
                port=ports[index],
                controller_port=ports[count + index],
                node_id=index + 1,
                cluster_id=cluster_id,
                format_options=("--initial-controllers", voters),
                heap=("-Xmx512M",),
                properties=settings,
            )
            for index in range(count)
        ]
        for node in nodes:
            node.format()
        self.bootstrap = ",".join(node.bootstrap for node in nodes)
        self.nodes = [ApacheNode(node) for node in nodes]

    def launch(self) -> None:
        """Start all nodes."""
        for node in self.nodes:
            node.launch()

    def await_ready(self, limit: float) -> None:
        """Return once each node serves or has ended, or the time is over."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if all(node.code is not None or node.is_ready for node in self.nodes):
                return
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL of all."""
        for node in self.nodes:
            node.signal(signal.SIGKILL)
        for node in self.nodes:
            if node.code is None:
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
        """Copy what is in the nodes' log directories to `directory`."""
        for index, node in enumerate(self.nodes):
            _copy(node.data_dir, directory / str(index + 1))

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
        return f"exit code {process.wait()}: {self._errors.read_text(errors='replace')[-500:]}"

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
