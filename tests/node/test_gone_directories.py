"""A log directory that goes away under a node, at any moment: the node says so in a line, and makes nothing there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.client.cluster import Client
from kbroker.errors import ErrorCode, LogDirFailure
from kbroker.log.disk import Buffer, OsDisk, OsFile
from kbroker.runtime.env import RealEnv
from kbroker.testing.cluster_node import until
from kbroker.tools.cli.start import find_fatal
from kbroker.types import Uuid
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.log_dirs import DescribeLogDirsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from kbroker.wire.messages.transactions import InitProducerIdRequest
from tests.node.node_harness import Node, batch, produce_request, run, running_node
from tests.node.process_harness import CommandNode
from tests.patience import LONG

POINTS = int(os.environ.get("KBROKER_GONE_POINTS", "12"))
"""Moments at which a directory goes; 0 for every operation on the disk."""

OPERATIONS = (
    *("open", "exists", "is_dir", "list_dir", "size", "make_dirs", "make_dir", "rename", "remove", "remove_tree"),
    *("sync_dir", "read_bytes", "write_bytes", "usage"),
)


class CountingFile(OsFile):
    """A file whose reads, writes and syncs count."""

    __slots__ = ("disk",)

    def __init__(self, fd: int, disk: CountingDisk) -> None:
        super().__init__(fd)
        self.disk = disk

    def pread(self, length: int, position: int) -> bytes:
        self.disk.count()
        return super().pread(length, position)

    def sync(self) -> None:
        self.disk.count()
        super().sync()

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.disk.count()
        super().write_at(position, buffers)


class CountingDisk(OsDisk):
    """A disk on which something happens at one of its operations, from 0."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.operations = 0
        self.happens: Callable[[], None] = lambda: None
        self.lock_held = False
        self.broken = False
        """Whether every operation fails from now on."""

    def count(self) -> None:
        if self.operations == self.at:
            self.happens()
        self.operations += 1
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def lock(self, path: str) -> Any:
        self.count()
        lock = super().lock(path)
        self.lock_held = True
        return lock

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.count()
        file = super().open(path, create=create)
        fd, file.fd = file.fd, -1
        return CountingFile(fd, self)


def counted(name: str) -> Callable[..., Any]:
    def method(disk: CountingDisk, *arguments: Any, **options: Any) -> Any:
        disk.count()
        return getattr(OsDisk, name)(disk, *arguments, **options)

    return method


for operation in OPERATIONS[1:]:
    setattr(CountingDisk, operation, counted(operation))


async def live(node: Node, topic: str) -> None:
    """Something of everything that writes, whatever comes of it."""
    try:
        client = await node.connect()
        for name in (topic, "gone"):
            topic_id = await node.create_topic(name)
            await client.ask(produce_request(name, batch(b"x", b"y"), topic_id=topic_id))
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        await client.ask(
            OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                    )
                ],
            ),
            9,
        )
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
        await client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000))
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000))
    except (EOFError, OSError, AssertionError, trio.BrokenResourceError):
        pass  # it was refused, or the node ended


def end_of(path: Path, disk: CountingDisk, topic: str = "t") -> BaseException | None:
    """The reason why a node ended, if it was not told to."""
    env = RealEnv(seed=1)
    env.disk = disk

    async def main() -> None:
        async with running_node(
            path, env, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1"
        ) as it:
            await live(it, topic)

    try:
        run(main)
    except BaseException as error:  # judged by the test
        return error
    return None


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The directory of a node that has lived once, and the operations on the disk in its next life."""
    path, whole = tmp_path_factory.mktemp("lived"), CountingDisk()
    assert end_of(path / "it", CountingDisk()) is None
    shutil.copytree(path / "it", path / "once")
    assert end_of(path / "it", whole, "u") is None
    return path / "once", whole.operations


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "broken"])
@pytest.mark.parametrize("part", range(POINTS))
def test_whenever_the_last_one_goes_no_traceback_is_printed(
    tmp_path: Path, lived: tuple[Path, int], caplog: pytest.LogCaptureFixture, part: int, removed: bool
) -> None:
    shutil.copytree(lived[0], tmp_path / "it")
    data = tmp_path / "it" / "data"
    disk = CountingDisk(part * lived[1] // POINTS)
    lock_held = False

    def happens() -> None:
        nonlocal lock_held
        lock_held = disk.lock_held
        if removed:
            shutil.rmtree(data)
        disk.broken = not removed

    disk.happens = happens
    error = end_of(tmp_path / "it", disk, "u")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert disk.operations > disk.at, "it came to that"
    fatal = None if error is None else find_fatal(error)
    assert fatal is not None, f"without the last directory, and that of the metadata log, there is no node: {error!r}"
    assert "\n" not in str(fatal)
    if lock_held:
        assert isinstance(fatal, LogDirFailure)
        assert not removed or not data.exists(), "nothing is made there"


class Started(CommandNode):
    """A node with its metadata log in a place of its own, and two log directories."""

    def __init__(self, directory: Path) -> None:
        self.one, self.two, self.metadata = (directory / name for name in ("one", "two", "metadata"))
        settings = {"log.dirs": f"{self.one},{self.two}", "metadata.log.dir": str(self.metadata)}
        super().__init__(directory, settings)

    def told(self) -> dict[str, int]:
        """The error code of each log directory, as DescribeLogDirs tells it."""
        with Client(self.bootstrap) as client:
            answer = client.ask_node(1, DescribeLogDirsRequest(topics=None))
        return {Path(result.log_dir).name: result.error_code for result in answer.results}

    def write(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """The error code of a record to each partition."""
        codes = {}
        with Client(self.bootstrap) as client:
            topic_id = Uuid(client.refresh([topic])[0].topic_id)
            for partition in partitions:
                request = produce_request(topic, batch(b"x"), partition=partition, topic_id=topic_id)
                codes[partition] = client.ask_node(1, request).responses[0].partition_responses[0].error_code
        return codes


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Started]:
    node = Started(tmp_path)
    node.start()
    yield node
    if node.lives:
        node.stop(kill=True)


@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "empty"])
def test_one_of_several_goes_and_the_node_goes_on_with_the_other(node: Started, made_anew: bool) -> None:
    """Made anew: there is the mount point of a disk that is unmounted."""
    with Client(node.bootstrap) as client:
        created = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in "tu"], timeout_ms=5000
        )
        assert [each.error_code for each in client.ask_node(1, created).topics] == [0, 0]
    assert node.write("t", range(4)) == dict.fromkeys(range(4), 0)
    lost = {int(path.name.rpartition("-")[2]) for path in node.one.glob("t-*")}
    assert lost and lost < set(range(4))
    shutil.rmtree(node.one)
    if made_anew:
        node.one.mkdir()
    until(lambda: "is offline" in node.log, "it is noticed", LONG)
    assert node.told() == {"one": ErrorCode.KAFKA_STORAGE_ERROR, "two": 0}
    expected = {partition: ErrorCode.KAFKA_STORAGE_ERROR if partition in lost else 0 for partition in range(4)}
    assert node.write("t", range(4)) == expected
    assert set(node.write("u", range(4)).values()) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
    node.stop(kill=False)
    assert [*node.one.rglob("*")] == [], "nothing is made there"
    [told] = [line for line in node.log.splitlines() if " ERROR " in line]
    assert f"log dir {node.one} is offline: it was removed, or its disk unmounted" in told
    assert "Traceback" not in node.log


@pytest.mark.parametrize("which", ["metadata", "all"])
def test_a_node_ends_by_itself_without_any_or_without_its_metadata(node: Started, which: str) -> None:
    for path in [node.metadata] if which == "metadata" else [node.one, node.two]:
        shutil.rmtree(path)
    assert node.wait(LONG) == LogDirFailure.exit_code
    assert "Traceback" not in node.log
    assert node.log.splitlines()[-1].startswith("kbroker: ")
    assert not node.metadata.exists() or which == "all"


def test_the_metadata_log_is_one_node_s_alone(node: Started, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = CommandNode(tmp_path / "other", {"log.dirs": "data", "metadata.log.dir": str(node.metadata)})
    with pytest.raises(AssertionError, match=r"metadata is in use by another broker"):
        other.start()
