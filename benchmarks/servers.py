"""The two brokers that are compared, behind one shape: start, address, process, stop.

Both run on loopback with their stock settings and their data in a temporary folder. Two settings are changed on both:
`log.segment.delete.delay.ms`, so that the gigabytes of a deleted topic do not stay for another minute, and
`group.initial.rebalance.delay.ms`, as a new group's first wait is not what is measured.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import psutil

from compat_tests.apache_kafka import SERVER_JVM_OPTIONS, SERVER_VERSION, ApacheKafka, java_command

Clock = Callable[[Sequence[psutil.Process]], float]
"""Tells the processor time of processes so far, in seconds; ``OSError`` if it cannot."""

ROOT = Path(__file__).resolve().parent.parent
COMMON = {"log.segment.delete.delay.ms": "200", "group.initial.rebalance.delay.ms": "500"}


class ServerError(Exception):
    """A broker did not start or died; the message holds the end of its log."""


class Server(ABC):
    """A broker in processes of its own. `start` returns as soon as the process runs."""

    name: ClassVar[str]
    host = "127.0.0.1"

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.port = 0
        self.more_properties: dict[str, str] = {}
        """More properties, for the next start."""
        self._process: subprocess.Popen[bytes] | None = None
        self.format_seconds = 0.0
        self.launched_at = 0.0
        """`time.monotonic()` just before the process was started."""

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @abstractmethod
    def start(self) -> None:
        """Formats where that is a step of its own, then launches. Raises ServerError."""

    @abstractmethod
    def await_port(self) -> None:
        """Waits until the port is known. It need not accept yet. Raises ServerError."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def log_tail(self) -> str:
        """The end of what the broker logged."""
        with contextlib.suppress(OSError):
            return (self.directory / "server.log").read_text(errors="replace")[-2000:]
        return ""

    def stop(self) -> None:
        """Ends the process, by force after 15 s, and removes its data."""
        self.halt()
        shutil.rmtree(self.directory, ignore_errors=True)

    def halt(self) -> None:
        """Ends the process, by force after 15 s; `start` goes on with its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def kill(self) -> None:
        """Ends the process at once, as a crash would; `start` goes on with its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def cpu_seconds(self) -> float:
        """User and system time of the broker and its worker processes since their start."""
        return _counted(self._processes())

    def processor_clock(self, clock: Clock | None = None) -> Callable[[], float]:
        """Begin to measure: each call of the function that is returned tells the processor time since then, in seconds.

        It is exact to less than a millisecond where the kernel has a clock for each process, as Linux has;
        `cpu_seconds` counts hundredths of a second, half a percent of a slice of two seconds. ServerError if the
        processes are others by then: the time of one that has ended is not known.
        """
        processes = self._processes()
        read = clock or _clocked
        try:
            began = read(processes)
        except OSError:
            read = _counted
            began = read(processes)

        def used() -> float:
            try:
                if set(self._processes()) == set(processes):
                    return read(processes) - began
            except (OSError, psutil.NoSuchProcess):
                pass
            raise ServerError(f"a process of {self.name} began or ended while its processor time was measured")

        return used

    def resident_bytes(self) -> int:
        """Resident memory of the broker and its worker processes."""
        return sum(process.memory_info().rss for process in self._processes())

    def peak_bytes(self) -> int:
        """The most resident memory that the broker's own process has had, where the kernel tells; else 0."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return 0

    def _processes(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            raise ServerError(f"{self.name} died") from None


def _counted(processes: Sequence[psutil.Process]) -> float:
    """The user and system time of processes so far, in seconds, as it is accounted for."""
    total = 0.0
    for process in processes:
        times = process.cpu_times()
        total += times.user + times.system
    return total


def _clocked(processes: Sequence[psutil.Process]) -> float:
    """The same by the clocks of the processes. OSError if they have none."""
    return sum(time.clock_gettime(_clock_of(process.pid)) for process in processes)


def _clock_of(pid: int) -> int:
    """The clock of a process's processor time, as Linux numbers it (clock_getcpuclockid(3))."""
    return ~pid << 3 | 2


class Kbroker(Server):
    """`python -m kbroker start` of a checkout, on a free port, formatted by its own first start."""

    name = "kbroker"
    root: ClassVar[Path] = ROOT
    """The checkout."""
    options: tuple[str, ...] = ()
    """Of `kbroker start`."""

    def start(self) -> None:
        command = [sys.executable, "-m", "kbroker", "start", "--port", "0"]
        command += ["--data-dir", str(self.directory / "data"), *self.options]
        for name, value in {**COMMON, **self.more_properties}.items():
            command += ["-o", f"{name}={value}"]
        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        # An installed package is compiled; a checkout whose modules have changed since their last run is not.
        compileall.compile_dir(self.root / "kbroker", quiet=1)
        self.launched_at = time.monotonic()
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
            )

    def await_port(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        output = self._process.stdout.fileno()
        seen = b""
        while time.monotonic() < self.launched_at + 30:
            if not is_readable(output, 0.1):
                continue
            chunk = os.read(output, 4096)
            seen += chunk
            ready = re.search(rb"kbroker ready: (?:\w+://)?[^\s,]+:(\d+)", seen)
            if ready:
                self.port = int(ready.group(1))
                return
            if not chunk:
                break
        raise ServerError(f"kbroker did not start:\n{self.log_tail()}")


def commit() -> str:
    """The checkout's commit, with a mark when it was changed; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within so many seconds; the descriptor may be above 1,024."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Apache(Server):
    """Apache Kafka 4.4.0 as one combined node with the stock heap and JVM options."""

    name = "apache"

    def start(self) -> None:
        properties = {**COMMON, **self.more_properties}
        node = ApacheKafka(directory=self.directory, properties=properties, jvm_options=SERVER_JVM_OPTIONS)
        node.format()
        self.format_seconds, self.port = node.format_seconds, node.port
        command = java_command(
            "kafka.Kafka",
            str(self.directory / "server.properties"),
            jvm_options=(*node.heap, *SERVER_JVM_OPTIONS),
            log_config="log4j2.properties",
            logs_dir=self.directory / "logs",
            version=SERVER_VERSION,
        )
        self.launched_at = time.monotonic()
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def await_port(self) -> None:
        pass  # chosen before the start


class MeasuredKbroker(Kbroker):
    """kbroker with its page for Prometheus, which nobody reads meanwhile."""

    options = ("--metrics", "0")


def explorer_of(server: Server) -> str:
    """The address of a node's explorer, as its log tells. ServerError if it does not."""
    deadline = time.monotonic() + 10
    while not (announced := re.search(r"explorer is on http://(127\.0\.0\.1:\d+)", server.log_tail())):
        if time.monotonic() > deadline:
            raise ServerError(f"the explorer's address is not in the log:\n{server.log_tail()}")
        time.sleep(0.01)
    return announced.group(1)


class WatchedKbroker(Kbroker):
    """kbroker with its explorer, and `kbroker watch` that reads from it all the time."""

    options = ("--explorer", "0")

    def __init__(self) -> None:
        super().__init__()
        self._watcher: subprocess.Popen[bytes] | None = None

    def await_port(self) -> None:
        super().await_port()
        address = explorer_of(self)
        with (self.directory / "watched").open("wb") as shown:
            self._watcher = subprocess.Popen(
                [sys.executable, "-m", "kbroker", "watch", "-b", address],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=shown,
                env=os.environ | {"PYTHONPATH": str(self.root)},
            )

    def halt(self) -> None:
        if self._watcher is not None:
            if self._watcher.poll() is not None:
                raise ServerError("kbroker watch ended before the broker")
            self._watcher.terminate()
            self._watcher.wait()
            self._watcher = None
        super().halt()


class CoresKbroker(Kbroker):
    """kbroker with a node for each of two cores; clients are told of the first."""

    options = ("--cores", "2")


class PlainKbroker(Kbroker):
    """The same without, as what it is compared with."""

    name = "before"


ADDITIONS: dict[str, type[Kbroker]] = {"metrics": MeasuredKbroker, "explorer": WatchedKbroker, "cores": CoresKbroker}
"""Nodes with an addition that is off by default, by the words of the option ``--with``."""
KINDS: dict[str, type[Server]] = {"kbroker": Kbroker, "apache": Apache}


def earlier(checkout: Path) -> type[Server]:
    """kbroker of another checkout, under the name ``before``."""
    return type("Before", (Kbroker,), {"name": "before", "root": checkout})
