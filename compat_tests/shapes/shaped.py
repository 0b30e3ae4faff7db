"""kbroker in a shape: nodes of one role or of two, with so many log directories, at the level of some release.

Each node is formatted and started by kbroker's own commands, as a user does it.
"""

from __future__ import annotations

import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbroker.tools.cli.cluster_plan import READY, cluster_properties, free_ports
from kbroker.types import random_uuid, uuid_to_str
from tests.patience import LONG

ROOT = Path(__file__).resolve().parent.parent.parent
DEVELOPMENT = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "10"}


class ShapeError(Exception):
    """A node did not start or stop as it should; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``controllers`` are nodes besides the brokers; without any, every broker is one as well."""

    brokers: int = 1
    controllers: int = 0
    log_dirs: int = 1
    """Of each broker."""
    release: str | None = None
    """The release whose ``metadata.version`` the cluster begins with; None for the latest."""
    of_brokers: Mapping[str, str] = field(default_factory=dict)
    """Properties that the controllers besides them do not have."""


SHAPES: Mapping[str, Shape] = {
    "apart": Shape(controllers=1, of_brokers={"num.partitions": "4"}),
    "apart-3": Shape(brokers=3, controllers=1),
    "log-dirs": Shape(log_dirs=3),
    "log-dirs-3": Shape(brokers=3, log_dirs=2),
    "3.3": Shape(release="3.3-IV3"),
    "apart-3.3": Shape(brokers=3, controllers=1, release="3.3-IV3"),
    "3.7-IV1": Shape(controllers=3, release="3.7-IV1"),
    "3.9": Shape(release="3.9"),
}


class ShapedNode:
    """A node: its properties file, its directories, its process."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self.id = int(properties["node.id"])
        self._directory = directory
        self._file = directory / f"node-{self.id}.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def log(self) -> str:
        """The node's standard error so far."""
        return (self._directory / f"node-{self.id}.log").read_text(errors="replace")

    def format(self, cluster_id: str, release: str | None) -> None:
        """Format its directories."""
        command = ["format", "-c", str(self._file), "-t", cluster_id, *(("-r", release) if release else ())]
        done = subprocess.run(self._command(*command), capture_output=True, text=True, env=_environment(), check=False)
        if done.returncode:
            raise ShapeError(f"node {self.id} cannot be formatted: {done.stderr or done.stdout}")

    def start(self) -> None:
        """Start it; ``await_ready`` is to follow."""
        with open(self._directory / f"node-{self.id}.log", "ab") as errors:
            self._process = subprocess.Popen(
                self._command("start", "-c", str(self._file), "--until-eof"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(),
            )
        lines = self._lines = queue.SimpleQueue()
        stdout = self._process.stdout
        assert stdout is not None

        def read() -> None:
            for line in stdout:
                lines.put(line)
            lines.put("")
            stdout.close()

        threading.Thread(target=read, daemon=True).start()

    def await_ready(self) -> None:
        """Until it serves."""
        try:
            while line := self._lines.get(timeout=LONG):
                if line.startswith(READY):
                    return
        except queue.Empty:
            pass
        raise ShapeError(f"node {self.id} does not serve:\n{self.log[-3000:]}")

    def stop(self) -> None:
        """SIGTERM, and the end in good order."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            code = process.wait(LONG)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ShapeError(f"node {self.id} did not stop within {LONG} s:\n{self.log[-3000:]}") from None
        if code:
            raise ShapeError(f"node {self.id} ended with code {code} on SIGTERM:\n{self.log[-3000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "kbroker", *arguments]


class ShapedCluster:
    """The nodes of a shape: brokers from 1 on, controllers besides them from 101 on. A broker of the cases."""

    name = "kbroker"
    can_restart = True
    data_dir: Path | None = None

    def __init__(self, shape: Shape, *options: str) -> None:
        """``options`` are properties of all nodes, as NAME=VALUE."""
        self.shape = shape
        self._directory = Path(tempfile.mkdtemp(prefix="compat-shape-"))
        given = {**DEVELOPMENT, **dict(option.split("=", 1) for option in options)}
        self._nodes = [ShapedNode(self._directory, own | given) for own in self._properties()]
        self.bootstrap = ",".join(self._addresses)
        cluster_id = uuid_to_str(random_uuid(random.SystemRandom()))
        try:
            for node in self._nodes:
                node.format(cluster_id, shape.release)
            self.start()
        except BaseException:
            self._remove()
            raise

    def _properties(self) -> list[dict[str, str]]:
        shape = self.shape
        brokers = list(range(1, shape.brokers + 1))
        controllers = list(range(101, 101 + shape.controllers)) or brokers
        ports = free_ports(len(brokers) + len(controllers))
        of_broker = dict(zip(brokers, ports, strict=False))
        of_controller = dict(zip(controllers, ports[len(brokers) :], strict=True))
        self._addresses = [f"127.0.0.1:{of_broker[broker]}" for broker in brokers]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in of_controller.items())
        found = []
        for node in sorted({*brokers, *controllers}):
            listeners = {"PLAINTEXT": of_broker.get(node), "CONTROLLER": of_controller.get(node)}
            roles = [role for role, ids in (("broker", brokers), ("controller", controllers)) if node in ids]
            directories = shape.log_dirs if node in brokers else 1
            found.append(
                {
                    "node.id": str(node),
                    "process.roles": ",".join(roles),
                    "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items() if port),
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": voters,
                    "log.dirs": ",".join(str(self._directory / f"node-{node}-{index}") for index in range(directories)),
                    **cluster_properties(shape.brokers),
                    **(shape.of_brokers if node in brokers else {}),
                }
            )
        return found

    @property
    def nodes(self) -> Sequence[ShapedNode]:
        """Brokers first, then the controllers besides them."""
        return self._nodes

    def start(self) -> None:
        """Start all nodes, and return once they serve."""
        for node in self._nodes:
            node.start()
        for node in self._nodes:
            node.await_ready()

    def restart(self, nodes: Sequence[ShapedNode] | None = None) -> None:
        """Every node, or these, one after the other, in good order."""
        for node in self._nodes if nodes is None else nodes:
            node.stop()
            node.start()
            node.await_ready()

    def crash(self) -> None:
        """SIGKILL of all nodes at once, and start again."""
        for node in self._nodes:
            node.kill()
        self.start()

    def stop(self) -> None:
        """The brokers first: they need a controller to go in good order."""
        try:
            for node in self._nodes:
                node.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        for node in self._nodes:
            node.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
