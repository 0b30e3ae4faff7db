"""The two brokers on one directory, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from compat_tests.apache_kafka import ApacheKafka
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

ROOT = Path(__file__).resolve().parents[2]

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "3",
    "log.cleaner.backoff.ms": "300",
    "log.initial.task.delay.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}

APACHE_COMPLAINTS = ("corrupt", "Rebuilding", "Recovering unflushed", "Reset", "is invalid", " ERROR ", "Exception")
"""Log messages of Apache Kafka about damage: it must write none after a clean stop."""
APACHE_READERS = (
    "org.apache.kafka.storage.",
    "org.apache.kafka.snapshot.",
    "org.apache.kafka.raft.internals.",
    "org.apache.kafka.image.",
    "org.apache.kafka.metadata.",
    "org.apache.kafka.server.fault.",
    "org.apache.kafka.coordinator.common.runtime.CoordinatorLoader",
    "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime",
    "kafka.coordinator.transaction.TransactionStateManager",
    "kafka.cluster.Partition",
    "kafka.server.ReplicaManager",
    "kafka.server.BrokerServer",
    "kafka.server.ControllerServer",
    "kafka.server.SharedServer",
)
"""The loggers of what reads a log directory, by the beginnings of their names.

Others write errors that only tell of the order in which the parts of a node come up. The most common one: the broker
registers itself before the controller knows that it is the active one (``ControllerApis``, NotControllerException).
"""
_EVENT = re.compile(r"\n(?=\[\d{4}-\d\d-\d\d )")
_LOGGER = re.compile(r" \(([\w.$]+)\)$", re.MULTILINE)
KBROKER_COMPLAINTS = ("cut at", "rebuild", "set aside", "left out", "ERROR", "Traceback", "corrupt", "to no segment")


class Place:
    """A directory with the ports that its metadata names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.controller_port = free_ports(2)

    @property
    def data(self) -> Path:
        """The log dir."""
        return self.directory / "data"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


class Node(Protocol):
    """A broker that runs in a place."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def complaints(self) -> list[str]:
        """Lines of its log, since the start, that tell of something wrong in the directory."""
        ...


class Apache:
    """Apache Kafka 4.4.0 in a place."""

    def __init__(
        self,
        place: Place,
        properties: Mapping[str, str] | None = None,
        format_options: Sequence[str] = ("--standalone",),
    ) -> None:
        self._place = place
        self._node = ApacheKafka(
            directory=place.directory,
            format_options=format_options,
            port=place.port,
            controller_port=place.controller_port,
            properties={**PROPERTIES, **(properties or {})},
            heap=("-Xmx768M",),
        )

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.stop(timeout=LONG)

    def kill(self) -> None:
        self._node.kill()

    def complaints(self) -> list[str]:
        return apache_complaints((self._place.directory / "server.log").read_text(errors="replace"))


def apache_complaints(log: str) -> list[str]:
    """The messages in Apache Kafka's log, with their stack traces, that tell of something wrong in the directory."""
    found = []
    for event in _EVENT.split(log):
        named = _LOGGER.search(event)
        # What has no logger's name comes from the virtual machine.
        is_reader = named is None or named[1].startswith(APACHE_READERS)
        # The metadata log has no marker of a clean stop, and is always recovered.
        expected = "Recovering unflushed segment" in event and "__cluster_metadata" in event
        if is_reader and not expected and any(word in event for word in APACHE_COMPLAINTS):
            found.append(event)
    return found


class Kbroker:
    """kbroker, by its command, in a place; `code` is the directory of its package."""

    def __init__(self, place: Place, properties: Mapping[str, str] | None = None, code: Path = ROOT) -> None:
        self._place, self._code = place, code
        self._properties = properties or {}
        self._log = place.directory / "kbroker.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        place = self._place
        settings = {
            **PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{place.port},CONTROLLER://127.0.0.1:{place.controller_port}",
            "log.dirs": str(place.data),
            "node.id": "1",
            **self._properties,
        }
        command = [sys.executable, "-m", "kbroker", "start"]
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        with open(self._log, "wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=place.directory,
                env={**os.environ, "PYTHONPATH": str(self._code)},
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(300, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith("kbroker ready:"):
                    return
        finally:
            watchdog.cancel()
        raise AssertionError(f"kbroker did not start:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            assert process.wait(LONG) == 0, self._log.read_text()[-3000:]
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def complaints(self) -> list[str]:
        text = self._log.read_text(errors="replace")
        return [line for line in text.splitlines() if any(word in line for word in KBROKER_COMPLAINTS)]
