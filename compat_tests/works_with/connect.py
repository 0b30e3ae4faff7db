"""Workers of Kafka Connect in distributed mode, and their REST interface."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from compat_tests.works_with.program import Program
from compat_tests.works_with.running import Running, RunningError, wait_until
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, SHORT

JVM = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO", "-Djava.awt.headless=true")
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"


def java(program: Program, main_class: str, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a class of the program's jars."""
    return ["java", *JVM, "-cp", f"{program.jars()[0].parent}/*", main_class, *arguments]


class Worker:
    """A worker with the recipe's connect.properties, which may be killed and started again; a context manager.

    ``folder`` is where it runs; connectors know it as ``${env:FOLDER}``.
    """

    def __init__(
        self, program: Program, bootstrap: str, folder: Path, name: str, more: Mapping[str, str] | None = None
    ) -> None:
        (self.port,) = free_ports(1)
        self.name = name
        self._folder = folder
        self._command = java(program, DISTRIBUTED, program.file("connect.properties"))
        self._environment = {"KAFKA": bootstrap, "PORT": str(self.port), "FOLDER": str(folder), **(more or {})}
        self.running: Running
        self.launch()

    @property
    def address(self) -> str:
        """The address of its REST interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def worker_id(self) -> str:
        """Its name in the answers of all workers."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it; `await_ready` tells when it serves."""
        self.running = Running(self._command, self._folder, self.name, self._environment)

    def await_ready(self, seconds: float = LONG) -> None:
        """Return once it is a member of the group and answers about connectors."""

        def answers() -> bool:
            try:
                self.ask("GET", "/connectors")
            except (RunningError, OSError):
                return False
            return True

        self.running.until(answers, "to answer", seconds)

    def ask(self, method: str, path: str, body: object = None) -> object:
        """The answer to a request. `RunningError` with the answer, if it is an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SHORT) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            raise RunningError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}") from error
        return json.loads(content) if content else None

    def states(self, connector: str) -> tuple[str, dict[str, str]]:
        """A connector's state, and the state of each of its tasks by the worker that runs it."""
        try:
            answer = self.ask("GET", f"/connectors/{connector}/status")
        except (RunningError, OSError):
            return "", {}
        assert isinstance(answer, dict)
        return answer["connector"]["state"], {task["worker_id"]: task["state"] for task in answer["tasks"]}

    def await_running(self, connector: str, without: str = "", seconds: float = LONG) -> str:
        """The worker that runs the connector's one task, once it runs. `without` is a worker that must not be it."""
        found = ""

        def runs() -> bool:
            nonlocal found
            state, tasks = self.states(connector)
            found = next(iter(tasks), "")
            return state == "RUNNING" and list(tasks.values()) == ["RUNNING"] and found != without

        self.running.until(runs, f"to see {connector} running", seconds)
        return found

    def kill(self) -> None:
        """End it at once."""
        self.running.kill()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.running.kill()


def run_script(program: Program, name: str, **environment: str) -> str:
    """Run a shell script of the recipe in its folder; what it prints. `RunningError` if it fails."""
    done = subprocess.run(
        ["sh", "-eu", program.file(name)],
        cwd=program.folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG,
        check=False,
    )
    if done.returncode:
        raise RunningError(f"{name} ended with exit code {done.returncode}: {done.stdout}")
    return done.stdout


def await_lines(path: Path, count: int, seconds: float = SHORT) -> list[str]:
    """The lines of a file, once there are so many."""
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count, f"{count} lines in {path}", seconds)
    return path.read_text("utf-8").splitlines()
