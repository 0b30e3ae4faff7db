"""A data directory with damaged files opens, or the node says in one line which file it is and ends with its code."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.client.cluster import Client
from kbroker.client.reader import Chunk, Reader
from kbroker.errors import FatalError, LogDirFailure
from kbroker.testing import running_broker
from tests.cli_command import kbroker
from tests.node.process_harness import ROOT
from tests.patience import LONG

NOISE = bytes(range(256)) * 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a node that has stored some records and stopped."""
    directory = tmp_path_factory.mktemp("whole")
    with Started(directory) as node:
        address = node.address()
        for topic, lines in (("t", "one\ntwo\n"), ("u", "three\n")):
            assert kbroker("topic", "create", topic, "-b", address, cwd=directory).returncode == 0
            (directory / topic).write_text(lines)
            produced = kbroker("produce", topic, topic, "-b", address, cwd=directory)
            assert produced.returncode == 0, produced.stderr
    assert node.code == 0
    yield directory


class Started:
    """`kbroker start` in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.code: int | None = None
        self.errors = ""

    def __enter__(self) -> Started:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kbroker", "start", "--port", "0"],
            cwd=self._directory,
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def address(self) -> str:
        """Where it serves; empty if it has ended instead."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rpartition(" ")[2].strip()

    def kill(self) -> None:
        """With signal 9."""
        self._process.kill()

    def wait(self) -> None:
        """Until it ends by itself."""
        self._process.wait(LONG)

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        _, self.errors = self._process.communicate(timeout=LONG)
        self.code = self._process.returncode


def values(address: str, topic: str, count: int) -> list[bytes | None]:
    """The values of a topic of so many records."""
    with Client(address, timeout=LONG) as client:
        reader = Reader(client, topic, {0: 0}, ends={0: count})
        found: list[bytes | None] = []
        while chunks := reader.poll(LONG):
            found += [record.value for chunk in chunks if isinstance(chunk, Chunk) for record in chunk.records]
    return found


def garbage(path: Path) -> None:
    path.write_bytes(NOISE)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def torn(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 7])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def nameless(path: Path) -> None:
    path.write_text("".join(line for line in path.open() if not line.startswith("directory.id")))


def of_another(path: Path) -> None:
    path.write_text("version: 0\ntopic_id: SaQDINVnWBiUFq1Qlu3HWQ\n")


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


Damage = Callable[[Path], None]


def damaged(whole: Path, path: Path, damages: Mapping[str, Damage]) -> Path:
    copy = path / "copy"
    shutil.copytree(whole, copy)
    for name, damage in damages.items():
        (found,) = (copy / "kbroker-data").glob(name)
        damage(found)
    return copy


QUORUM_STATE = "__cluster_metadata-0/quorum-state"
MADE_ANEW: list[dict[str, Damage]] = [
    {"meta.properties": garbage, "t-0/topic-id": garbage},
    {"meta.properties": empty, QUORUM_STATE: empty, "t-0/partition.metadata": garbage},
    {"meta.properties": missing},
    {"quorum-promises": missing},
    {"meta.properties": nameless, QUORUM_STATE: garbage, "t-0/partition.metadata": of_another},
    {"meta.properties": flipped, "__cluster_metadata-0/partition.metadata": of_another},
    {"bootstrap.checkpoint": flipped, QUORUM_STATE: missing, "t-0/partition.metadata": missing},
    {"__cluster_metadata-0/00000000000000000000-0000000000.checkpoint": garbage, "quorum-promises": empty},
]
"""Files of the node, and files of a topic that know nothing of these."""


@pytest.mark.parametrize("damages", MADE_ANEW)
def test_files_that_something_else_can_tell_are_made_anew(
    whole: Path, tmp_path: Path, damages: dict[str, Damage]
) -> None:
    copy = damaged(whole, tmp_path, damages)
    for _ in range(2):
        with running_broker(data_dir=copy / "kbroker-data") as node:
            address = node.bootstrap_servers
            assert values(address, "t", 2) == [b"one", b"two"] and values(address, "u", 1) == [b"three"]
        assert not [line for line in node.logs if line.exc_info]
    assert not [line for line in node.logs if line.levelno >= logging.WARNING], "the first start has mended it"


@pytest.mark.parametrize("name", [QUORUM_STATE, "quorum-promises"])
def test_a_node_that_cannot_know_who_it_is_names_the_file(whole: Path, tmp_path: Path, name: str) -> None:
    with Started(damaged(whole, tmp_path, {name: directory})) as node:
        assert node.address() == ""  # ends by itself, before it is told to
        node.wait()
    assert node.code in (FatalError.exit_code, LogDirFailure.exit_code)
    (line,) = [line for line in node.errors.splitlines() if not line[:4].isdigit()]
    assert line.startswith("kbroker: ")
    assert f"kbroker-data/{name}" in line
    assert "Traceback" not in node.errors


@pytest.mark.parametrize(
    "damages",
    [
        {"replication-offset-checkpoint": garbage, "t-0/*.index": garbage},
        {"recovery-point-offset-checkpoint": torn, "t-0/leader-epoch-checkpoint": garbage},
        {"t-0/*.log": torn},
    ],
)
def test_damage_in_one_partition_keeps_no_other_from_being_served(
    whole: Path, tmp_path: Path, damages: dict[str, Damage]
) -> None:
    copy = damaged(whole, tmp_path, damages)
    with running_broker(data_dir=copy / "kbroker-data") as node:
        assert values(node.bootstrap_servers, "u", 1) == [b"three"]
    assert not [line for line in node.logs if line.exc_info]
