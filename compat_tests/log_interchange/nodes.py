"""The two brokers on one directory, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from compat_tests.apache_kafka import ApacheKafka
from kbroker.cli.cluster_plan import free_ports

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
KBROKER_COMPLAINTS = ("cut at", "rebuild", "dropped", "left out", "ERROR", "Traceback", "corrupt", "to no segment")


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
        self._node.stop(timeout=60)

    def kill(self) -> None:
        self._node.kill()

    def complaints(self) -> list[str]:
        text = (self._place.directory / "server.log").read_text(errors="replace")
        # The metadata log has no marker of a clean stop, and is always recovered. And where the other broker's session
        # has not ended yet, registering is tried again until it has.
        expected = ("__cluster_metadata", "DuplicateBrokerRegistration")
        lines = [line for line in text.splitlines() if not any(word in line for word in expected)]
        return [line for line in lines if any(word in line for word in APACHE_COMPLAINTS)]


class Kbroker:
    """kbroker, by its command, in a place."""

    def __init__(self, place: Place, properties: Mapping[str, str] | None = None) -> None:
        self._place = place
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
        root = str(Path(__file__).resolve().parent.parent.parent)
        with open(self._log, "wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=place.directory,
                env={**os.environ, "PYTHONPATH": root},
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(60, self._process.kill)
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
            assert process.wait(30) == 0, self._log.read_text()[-3000:]
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
