"""No command that starts nodes touches the directory of another: not by its default, and not when it is given it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError
from kbroker.log.disk import OsDisk
from kbroker.testing import RunningCluster, running_broker
from kbroker.tools.cli.cluster_plan import plan_cluster, prepare, secure_setup
from kbroker.tools.cli.data_owners import CONTAINER_CLUSTER_ID
from kbroker.tools.cli.start import development_properties, with_controller_listener
from kbroker.tools.cli.storage import format_if_needed
from tests.cli_command import kbroker
from tests.node.process_harness import ROOT
from tests.patience import LONG

COMMANDS: dict[str, Callable[[str], Sequence[str]]] = {
    "start": lambda data: ["start", "--port", "0", "--data-dir", data],
    "up": lambda data: ["up", "-n", "1", "--port", "0", "--data", data],
    "up --secure": lambda data: ["up", "-n", "1", "--port", "0", "--secure", "--data", data],
    "faults": lambda data: ["faults", "--port", "0", "--data-dir", data],
    "faults -n 2": lambda data: ["faults", "-n", "2", "--port", "0", "--data-dir", data],
    "container": lambda data: ["container", "-o", f"log.dirs={data}"],
}
"""By what is typed; what a fixture starts is that of ``faults``."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")} | {
    "PYTHONPATH": str(ROOT),
    "CLUSTER_ID": "",
}
"""Without what a container would be told."""
KINDS = {"faults": "start", "faults -n 2": "up"}
"""Commands that may go on with what another has begun."""


def begin(command: str, data: Path) -> None:
    """Leave behind what the command does when it starts for the first time."""
    if command.startswith("up"):
        secure = secure_setup(data, 2, wanted=command.endswith("--secure"))
        prepare(plan_cluster(2, data, port=0, secure=secure), secure)
        return
    properties = with_controller_listener(development_properties(str(data), 0))
    format_if_needed(BrokerConfig.from_properties(properties))
    if command == "container":
        marker = data / "meta.properties"
        lines = [line for line in marker.read_text().splitlines() if not line.startswith("cluster.id")]
        marker.write_text("\n".join([*lines, f"cluster.id={CONTAINER_CLUSTER_ID}", ""]))


def content(data: Path) -> dict[str, bytes]:
    """All files of nodes, and what they have in them; but to close a file that is locked would unlock it."""
    files = (path for path in data.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the environment of a command."""
    for name in os.environ.keys() - ENVIRONMENT.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("CLUSTER_ID", "")


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for first in sorted(COMMANDS.keys() - KINDS)
        for second in COMMANDS
        if KINDS.get(second, second) != first
    ],
)
def test_each_refuses_the_directory_of_another_in_one_line(tmp_path: Path, first: str, second: str) -> None:
    data = tmp_path / "data"
    begin(first, data)
    before = content(data)
    refused = kbroker(*COMMANDS[second]("data"), cwd=tmp_path)
    assert refused.returncode == 1, refused.stderr
    [line] = [line for line in refused.stderr.splitlines() if line.startswith("kbroker: ")]
    assert f"kbroker {first}" in line
    assert "Traceback" not in refused.stderr
    assert content(data) == before


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize("first", ["start", "up", "up --secure"])
@pytest.mark.parametrize("second", COMMANDS)
def test_each_refuses_a_directory_whose_node_runs(tmp_path: Path, first: str, second: str) -> None:
    data = tmp_path / "data"
    begin(first, data)
    log_dir = data if first == "start" else data / "node-1"
    lock = OsDisk().lock(str(log_dir / ".lock"))
    before = content(data)
    try:
        refused = kbroker(*COMMANDS[second]("data"), cwd=tmp_path)
    finally:
        lock.release()
    assert refused.returncode == 1, refused.stderr
    assert "Traceback" not in refused.stderr
    assert content(data) == before, "the files that its nodes are started with, too"


def test_the_node_of_a_cluster_is_no_node_of_its_own(tmp_path: Path) -> None:
    begin("up", tmp_path / "it")
    with pytest.raises(FatalError, match="node-1 belongs to kbroker up --data "):
        begin("start", tmp_path / "it" / "node-1")
    begin("start", tmp_path / "other" / "node-1")
    with pytest.raises(FatalError, match="node-1 belongs to kbroker start --data-dir "):
        begin("up", tmp_path / "other")
    with pytest.raises(FatalError, match="other cannot be a log directory: node-1 in it is one, of another node"):
        begin("start", tmp_path / "other")
    with pytest.raises(FatalError, match="belongs to kbroker up --data "):
        RunningCluster(1, data_dir=tmp_path / "it", secure=True)
    with pytest.raises(FatalError, match="belongs to kbroker up --data "), running_broker(data_dir=tmp_path / "it"):
        pass


@contextmanager
def running(words: Sequence[str], cwd: Path) -> Iterator[str]:
    """The command until the end of the block; where it serves."""
    with (cwd / f"{'-'.join(words)}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", *words],
            cwd=cwd,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("kbroker ready: "), (words, log.name)
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


PLAIN = (("start", "--port", "0"), ("up", "-n", "1", "--port", "0"))
SECURE = ("up", "-n", "1", "--port", "0", "--secure")


def topics(bootstrap: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return kbroker("topic", *words, "-b", bootstrap, cwd=cwd)


@pytest.mark.slow
def test_by_default_each_has_a_directory_of_its_own(tmp_path: Path) -> None:
    """All at once, then one after the other, the other way round."""
    with ExitStack() as stack:
        serving = [
            stack.enter_context(running(words, tmp_path)) for words in (*PLAIN, SECURE, ("faults", "--port", "0"))
        ]
        for name, bootstrap in zip(("of-start", "of-up"), serving, strict=False):
            assert topics(bootstrap, "create", name, cwd=tmp_path).returncode == 0
    for name, words in reversed([*zip(("of-start", "of-up"), PLAIN, strict=True)]):
        with running(words, tmp_path) as bootstrap:
            assert name in topics(bootstrap, "list", cwd=tmp_path).stdout
    assert not [*tmp_path.rglob("*-stray")]


@pytest.mark.slow
def test_a_directory_that_an_earlier_release_had_both_use_goes_on_with_both(tmp_path: Path) -> None:
    alone, cluster = PLAIN
    with running(alone, tmp_path) as bootstrap:
        assert topics(bootstrap, "create", "of-start", cwd=tmp_path).returncode == 0
    with running(cluster, tmp_path) as bootstrap:
        assert topics(bootstrap, "create", "of-up", cwd=tmp_path).returncode == 0
    for path in (tmp_path / "kbroker-cluster").iterdir():
        shutil.move(path, tmp_path / "kbroker-data")
    (tmp_path / "kbroker-cluster").rmdir()
    with running(alone, tmp_path) as bootstrap:
        assert "of-start" in topics(bootstrap, "list", cwd=tmp_path).stdout
    with running(cluster, tmp_path) as bootstrap:
        assert "of-up" in topics(bootstrap, "list", cwd=tmp_path).stdout
    assert not (tmp_path / "kbroker-cluster").exists()
    assert "kbroker-data/node-1 is left where it is" in (tmp_path / f"{'-'.join(alone)}.log").read_text()
