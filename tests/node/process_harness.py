"""The command ``kbroker start`` as a process of its own, which may be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG

ROOT = Path(__file__).parent.parent.parent
TO_THE_END = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
"""Properties of a stock consumer that reads to the end, and hears of the end at once."""


class CommandNode:
    """Node 1, alone, with a directory of its own. It is found at the same port each time that it is started."""

    def __init__(self, directory: Path, settings: Mapping[str, str], *, files: int | None = None) -> None:
        """``settings`` are its properties; it listens where this says. ``directory`` gets the file that it logs to.

        ``files``: how many it may have open.
        """
        self.directory = directory
        [self.port] = free_ports(1)
        self._settings = settings
        self._files = files
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, once it was started; nobody else is given the port while it is down."""
        return f"127.0.0.1:{self.port}"

    @property
    def lives(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The log of all its processes so far."""
        return (self.directory / "log").read_text()

    def start(self) -> float:
        """Seconds until it served. ``AssertionError`` with the end of its log if it never does."""
        began = time.monotonic()
        settings = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:0",
            **self._settings,
        }
        command = [sys.executable, "-m", "kbroker", "start"]
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        if self._files is not None:
            command = ["sh", "-c", f'ulimit -n {self._files} && exec "$@"', "sh", *command]
        with open(self.directory / "log", "ab") as log:
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        assert process.stdout is not None
        watchdog = threading.Timer(LONG, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                if line.startswith("kbroker ready:"):
                    return time.monotonic() - began
        finally:
            watchdog.cancel()
        raise AssertionError(self.log[-3000:])

    def stop(self, *, kill: bool) -> None:
        """SIGKILL, or SIGTERM, and wait until it is gone."""
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self.wait(LONG)

    def wait(self, timeout: float) -> int:
        """The exit status, which comes within ``timeout`` seconds."""
        assert self._process is not None and self._process.stdout is not None
        status = self._process.wait(timeout)
        self._process.stdout.close()
        return status
