"""``kbroker start --console``: the console lives and ends with its node, and the node needs nothing of it."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kbroker.client import Client
from kbroker.client.topics import list_topics
from kbroker.tools.cli import main
from kbroker.tools.cli.child import module_command
from tests.cli_command import process_put_back
from tests.console.console_process import ConsoleClient
from tests.patience import LONG, eventually

ROOT = Path(__file__).parents[2]

SECURED = [
    *("-o", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "-o", "inter.broker.listener.name=SASL_PLAINTEXT"),
    *("-o", "listener.security.protocol.map=CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"),
]


class NodeWithConsole:
    """``kbroker start --console`` as a process."""

    def __init__(self, data: Path, *words: str) -> None:
        command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--data-dir", str(data), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        ready = next((line for line in lines if line.startswith("kbroker ready: ")), "")
        self.bootstrap = ready.removeprefix("kbroker ready: ").strip()
        line = self.process.stdout.readline()
        found = re.search(r"http://(\S+?)/", line)
        assert found is not None, self.rest()
        self.line = line
        self.page = ConsoleClient(found[1])
        [self.child] = psutil.Process(self.process.pid).children()

    def rest(self) -> str:
        """Wait for the end of the process (at most five minutes), and return the rest of its log."""
        return self.process.communicate(timeout=LONG)[1]


@contextmanager
def node_with_console(data: Path, *words: str) -> Iterator[NodeWithConsole]:
    node = NodeWithConsole(data, *words)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.process.kill()
            node.rest()


def test_it_shows_its_node_and_ends_with_it(tmp_path: Path) -> None:
    with node_with_console(tmp_path / "data", "--console", "0", "--explorer", "0") as node:
        assert "(read-only)" in node.line
        told = node.page.enter()
        assert (told["writes"], told["explorer"], told["bootstrap"]) == (False, True, node.bootstrap)
        assert node.page.post("topic/create", {"name": "x"}).status == 403
        with node.page.events("explorer/events") as events:
            next(told for name, told in events if name == "nodes" and not told["silent"])
            node.page.get("overview", fresh=1)
            api = next(told["api"] for name, told in events if name == "exchange")
            assert api
        node.process.send_signal(signal.SIGTERM)
        assert "has stopped" in node.rest()
        assert node.process.returncode == 0
        assert not node.child.is_running() or node.child.status() == psutil.STATUS_ZOMBIE


def test_it_knows_the_registry_beside_the_node(tmp_path: Path) -> None:
    for package in ("fastavro", "h11"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    with node_with_console(tmp_path / "data", "--console", "0", "--registry", "0") as node:
        assert node.page.enter()["registry"] is True
        assert node.page.get("subjects").json["rows"] == []


def test_it_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    with node_with_console(tmp_path / "data", "--console", "0", "--console-writes") as node:
        assert "(changes are allowed)" in node.line
        assert node.page.post("topic/create", {"name": "made", "partitions": 1}).status == 200
        node.process.kill()
        psutil.wait_procs([node.child], timeout=LONG)
        eventually(lambda: not node.child.is_running() or node.child.status() == psutil.STATUS_ZOMBIE, "it has ended")


def test_the_node_serves_on_without_it(tmp_path: Path) -> None:
    with node_with_console(tmp_path / "data", "--console", "0") as node:
        node.child.kill()
        with Client(node.bootstrap) as client:
            assert list_topics(client) == []
        assert node.process.stderr is not None
        log = iter(node.process.stderr.readline, "")
        assert any("the console has ended with exit code -9; the node serves on without it" in line for line in log)
        assert node.process.poll() is None


def test_a_node_whose_console_cannot_start_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--console", str(port)]
        done = subprocess.run(
            [*command, "--data-dir", str(tmp_path / "data")], capture_output=True, text=True, timeout=LONG
        )
    assert done.returncode == 1
    assert f"kbroker: cannot listen on 127.0.0.1:{port}: the port is in use" in done.stderr
    assert "kbroker: the console did not start" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def start_in_this_process() -> Iterator[None]:
    """Restores afterwards the logging and garbage collection that ``start`` sets up for its process."""
    with process_put_back():
        yield


@pytest.mark.usefixtures("start_in_this_process")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--console", "nonsense"], "expected [HOST:]PORT"),
        (["--console", "0.0.0.0:0"], "port 0 is for the loopback interface"),
        (["--console-writes"], "go with --console"),
        (["--console", "0.0.0.0:8080", "--console-writes"], "lets everybody change the cluster"),
        (["--console", "0", "-o", "process.roles=controller", "-o", "listeners=CONTROLLER://127.0.0.1:0"], "alone"),
        (["--console", "0", *SECURED], "give client properties"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", "--data-dir", str(tmp_path / "data"), *words]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("start_in_this_process")
def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["start", "--console"]) == 1
    assert capsys.readouterr().err == "kbroker: the console needs starlette: pip install 'kbroker[console]'\n"


def test_files_beside_the_node_are_no_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise RuntimeError")
    command = module_command("kbroker")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([*command, "--version"], env=environment, capture_output=True).returncode == 0
    monkeypatch.chdir(ROOT)
    assert "-P" not in module_command("kbroker"), "a work tree that is not installed"
