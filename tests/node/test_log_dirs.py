"""Several log dirs on a running node: where logs go, how they move, and what is left when one of them fails."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode, LogDirFailure
from kbroker.log.disk import Buffer, OsDisk, OsFile
from kbroker.log.flushing import FlushTask
from kbroker.log.partition_log import PartitionLog
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.start import find_fatal
from kbroker.types import TopicPartition
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, batch, fetch_request, produce_request, running_node, values
from tests.node.quorum_harness import three_nodes
from tests.patience import LONG, SHORT, until

ONE, TWO = "data", "more"


class FaultyFile(OsFile):
    """A file whose reads, writes and syncs can be made to fail."""

    __slots__ = ("disk", "path")

    def __init__(self, fd: int, disk: FaultyDisk, path: str) -> None:
        super().__init__(fd)
        self.disk = disk
        self.path = path

    def pread(self, length: int, position: int) -> bytes:
        self.disk.check("read", self.path)
        return super().pread(length, position)

    def sync(self) -> None:
        self.disk.check("sync", self.path)
        super().sync()

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.disk.check("write", self.path)
        super().write_at(position, buffers)


class FaultyDisk(OsDisk):
    """A real disk of which a part can be broken."""

    def __init__(self) -> None:
        self.broken: dict[tuple[str, str], int] = {}
        """(operation, part of a path) -> error number."""

    def check(self, operation: str, path: str) -> None:
        for (failing, part), number in self.broken.items():
            if failing == operation and part in path:
                raise OSError(number, "broken", path)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        fd, file.fd = file.fd, -1
        return FaultyFile(fd, self, path)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.check("write", path)
        super().write_bytes(path, data, sync=sync)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        super().rename(old, new)


def env_with(disk: OsDisk) -> RealEnv:
    env = RealEnv(seed=1)
    env.disk = disk
    return env


@asynccontextmanager
async def two_dirs(path: Path, *, disk: OsDisk | None = None, **properties: str) -> AsyncIterator[Node]:
    dirs = f"{path / ONE},{path / TWO}"
    async with running_node(path, env_with(disk or OsDisk()), log_dirs=dirs, **properties) as node:
        yield node


async def describe(client: Client) -> dict[str, DescribeLogDirsResult]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    return {Path(result.log_dir).name: result for result in answer.results}


async def offline(client: Client) -> set[str]:
    """The dirs that have failed."""
    return {name for name, result in (await describe(client)).items() if result.error_code}


def held(result: DescribeLogDirsResult) -> set[tuple[str, int]]:
    """The current replicas in a dir, without future ones."""
    return {
        (topic.name, partition.partition_index)
        for topic in result.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


async def alter(client: Client, path: Path, topic: str, *partitions: int) -> list[int]:
    answer = await client.ask(
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
                )
            ]
        )
    )
    return [part.error_code for result in answer.results for part in result.partitions]


def places(node: Node, topic: str = "t") -> tuple[Path, Path]:
    """The dir that has the topic's only partition, and the other one."""
    manager = node.broker.log_manager
    source = manager.log_dir_of(TopicPartition(topic, 0))
    assert source is not None
    (target,) = (log_dir for log_dir in manager.log_dirs if log_dir is not source)
    return Path(source.path), Path(target.path)


async def produce(client: Client, topic: str, partition: int, *data: bytes) -> int:
    answer = await client.ask(produce_request(topic, batch(*data), partition=partition), 12)
    return int(answer.responses[0].partition_responses[0].error_code)


async def consume(client: Client, topic: str, partition: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = await client.ask(fetch_request(topic, [(partition, len(found))]), 12)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0
        more = [value for offset, value in values(part.records or b"") if offset >= len(found)]
        if not more:
            return found
        found += more


async def test_new_logs_are_spread(tmp_path: Path) -> None:
    async with two_dirs(tmp_path) as node:
        await node.create_topic("t", 6)
        client = await node.connect()
        found = await describe(client)
        assert len(held(found[ONE])) == len(held(found[TWO])) == 3
        assert found[ONE].total_bytes > 0


async def test_a_log_moves_while_it_is_written_and_read(tmp_path: Path) -> None:
    written: list[bytes] = []

    async with two_dirs(tmp_path) as node:
        await node.create_topic("t", internal_segment_bytes="300000")
        client, producer = await node.connect(), await node.connect()
        _, target = places(node)
        for number in range(200):
            data = b"%d-" % number + b"x" * 5000
            assert await produce(client, "t", 0, data) == 0
            written.append(data)
        stop = trio.Event()

        async def write() -> None:
            while not stop.is_set():
                data = b"%d-" % len(written) + b"y" * 500
                assert await produce(producer, "t", 0, data) == 0
                written.append(data)
                await trio.sleep(0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            assert await alter(client, target, "t", 0) == [0]
            seen_future = False
            while places(node)[0] != target:
                found = await describe(client)
                future = [
                    partition
                    for topic in found[target.name].topics
                    for partition in topic.partitions
                    if partition.is_future_key
                ]
                seen_future = seen_future or bool(future)
                answer = await client.ask(fetch_request("t", [(0, len(written) // 2)]), 12)
                assert answer.responses[0].partitions[0].error_code == 0
            assert seen_future
            stop.set()
        for number in range(3):
            written.append(b"after-%d" % number)
            assert await produce(client, "t", 0, written[-1]) == 0
        assert await consume(client, "t", 0) == written
        assert held((await describe(client))[target.name]) == {("t", 0)}
        assert await alter(client, target, "t", 0) == [0], "it is there"

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        assert await consume(client, "t", 0) == written


async def test_a_move_that_a_stop_interrupted_goes_on(tmp_path: Path) -> None:
    async with two_dirs(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce(client, "t", 0, b"1", b"2") == 0
    here = ONE if (tmp_path / ONE / "t-0").exists() else TWO
    there = TWO if here == ONE else ONE
    future = tmp_path / there / "t-0.0123456789abcdef0123456789abcdef-future"
    future.mkdir()
    (future / "00000000000000000000.log").write_bytes(b"half")

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        while held((await describe(client))[there]) != {("t", 0)}:
            await trio.sleep(0.01)
        assert await consume(client, "t", 0) == [b"1", b"2"]


async def test_what_cannot_move(tmp_path: Path) -> None:
    async with two_dirs(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await alter(client, tmp_path / "elsewhere", "t", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert await alter(client, tmp_path / TWO, "t", 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await alter(client, tmp_path / TWO, "later", 0, 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        await node.create_topic("later", 2)
        assert {("later", 0), ("later", 1)} <= held((await describe(client))[TWO]), "as was asked before it was there"


def cordon(value: str, operation: int = 0, *, broker: int = 1) -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource_type=4, resource_name=str(broker), configs=[config])]
    )


async def test_a_cordoned_dir_gets_no_new_logs(tmp_path: Path) -> None:
    """KIP-1066, changed while the node runs; the controller is told, and so is who asks for the log dirs."""

    async with two_dirs(tmp_path) as node:
        client = await node.connect()

        async def told() -> list[bool]:
            found = await describe(client)
            return [found[ONE].is_cordoned, found[TWO].is_cordoned]

        def known() -> set[bytes]:
            return {bytes(each) for each in node.broker.metadata.image.brokers[1].cordoned_log_dirs or ()}

        async def change(value: str, operation: int = 0) -> tuple[int, str | None]:
            [answer] = (await client.ask(cordon(value, operation))).responses
            return int(answer.error_code), answer.error_message

        two = str(tmp_path / TWO)
        ids = {log_dir.path: bytes(log_dir.directory_id or b"") for log_dir in node.broker.log_manager.log_dirs}
        assert await change(two) == (0, None)
        with trio.fail_after(SHORT):
            while known() != {ids[two]} or await told() != [False, True]:
                await trio.sleep(0.01)
        await node.create_topic("t", 4)
        assert len(held((await describe(client))[ONE])) == 4
        assert await alter(client, tmp_path / TWO, "t", 0) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        missing = "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        for operation in (0, 2):
            code, message = await change("/nowhere", operation)
            assert (code, message) == (ErrorCode.INVALID_REQUEST, missing + "Missing entries : /nowhere")
        # All of them: there is no broker for a new topic, nor for a new replica.
        assert await change("*") == (0, None)
        await until(lambda: known() == set(ids.values()))
        assert await told() == [True, True]
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        refused = (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0]
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert refused.error_message.endswith("have all their log directories cordoned.")
        assert await change("") == (0, None)
        with trio.fail_after(SHORT):
            while known() or await told() != [False, False]:
                await trio.sleep(0.01)
        await node.create_topic("u", 2)
        assert len(held((await describe(client))[TWO])) == 2


async def test_a_controller_takes_cordoned_dirs_from_their_broker_alone(tmp_path: Path) -> None:
    """Another node than the active controller has judged the paths, which a controller does not know."""
    async with three_nodes(tmp_path) as cluster:
        controller = await cluster.await_leader()
        broker = next(node_id for node_id in cluster.nodes if node_id != controller)
        path = cluster.nodes[broker].log_manager.log_dirs[0].path
        direct, own = await cluster.controller_client(controller), await cluster.node(broker).connect()

        async def change(client: Client, value: str) -> int:
            [answer] = (await client.ask(cordon(value, broker=broker))).responses
            return int(answer.error_code)

        assert await change(direct, path) == ErrorCode.INVALID_CONFIG
        assert await change(own, path) == ErrorCode.NONE
        await cluster.until(lambda: cluster.nodes[broker].log_manager.log_dirs[0].cordoned)
        assert await change(direct, path) == ErrorCode.NONE
        assert await change(direct, "") == ErrorCode.NONE
        assert await change(direct, path) == ErrorCode.INVALID_CONFIG


async def test_a_damaged_log_stays_where_it_is_and_the_node_lives_on(tmp_path: Path) -> None:
    async with two_dirs(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce(client, "t", 0, b"x") == 0
        source, target = places(node)
        segment = source / "t-0" / "00000000000000000000.log"
        segment.write_bytes(segment.read_bytes()[:-1] + b"?")
        assert await alter(client, target, "t", 0) == [0]
        # It is read in a thread.
        await until(lambda: node.broker.log_manager.moves.of(TopicPartition("t", 0)) is None)
        assert places(node) == (source, target)
        assert await offline(client) == set()
        assert await produce(client, "t", 0, b"after") == 0


async def test_a_log_that_cannot_be_read_takes_its_own_dir_offline_and_not_the_one_that_it_is_to_move_to(
    tmp_path: Path,
) -> None:
    """Disks that fail are those that logs are moved off."""
    disk = FaultyDisk()

    async with two_dirs(tmp_path, disk=disk, metadata_log_dir=str(tmp_path / "metadata")) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce(client, "t", 0, b"x") == 0
        source, target = places(node)
        disk.broken[("read", f"{source}/t-0/")] = errno.EIO
        assert await alter(client, target, "t", 0) == [0]
        while not (failed := await offline(client)):  # it is read in a thread
            await trio.sleep(0.001)
        assert failed == {source.name}
        assert await produce(client, "t", 0, b"after") == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_node_ends_whose_metadata_log_is_in_a_dir_that_fails(tmp_path: Path) -> None:
    """Also when another log showed it."""
    disk = FaultyDisk()

    with pytest.raises(BaseExceptionGroup) as ended:
        async with two_dirs(tmp_path, disk=disk) as node:
            await node.create_topic("t", 4)
            client = await node.connect()
            partition = min(held((await describe(client))[ONE]))[1]
            disk.broken[("write", f"/{ONE}/t-")] = errno.EIO
            await client.send(produce_request("t", batch(b"x"), partition=partition), 12)
            await trio.sleep_forever()
    assert isinstance(find_fatal(ended.value), LogDirFailure)


async def test_a_log_has_moved_also_if_the_one_that_it_leaves_cannot_be_renamed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    written = [b"0", b"1", b"2"]

    async with two_dirs(tmp_path, disk=disk, metadata_log_dir=str(tmp_path / "metadata")) as node:
        await node.create_topic("t")
        client = await node.connect()
        for data in written:
            assert await produce(client, "t", 0, data) == 0
        source, target = places(node)
        disk.broken[("rename", f"{source}/t-0")] = errno.EROFS
        assert await alter(client, target, "t", 0) == [0]
        while not await offline(client):
            await trio.sleep(0.001)
        assert await offline(client) == {source.name}
        assert places(node) == (target, source)
        written.append(b"after")
        assert await produce(client, "t", 0, b"after") == 0
        assert await consume(client, "t", 0) == written
    disk.broken.clear()

    async with two_dirs(tmp_path, metadata_log_dir=str(tmp_path / "metadata")) as node:
        """There are two of it now."""
        assert await consume(await node.connect(), "t", 0) == written


async def test_a_flush_that_fails_once_its_log_has_moved_takes_the_dir_offline_that_it_was_in(tmp_path: Path) -> None:
    class SlowDisk(FaultyDisk):
        """Syncs of what is ``stuck`` fail, but not before they are let ``go``."""

        stuck = ""

        def check(self, operation: str, path: str) -> None:
            super().check(operation, path)
            if operation == "sync" and self.stuck and path.startswith(self.stuck):
                began.set()
                assert go.wait(2 * LONG)
                raise OSError(errno.EIO, "broken", path)

    disk = SlowDisk()
    began, go = threading.Event(), threading.Event()

    try:
        async with two_dirs(tmp_path, disk=disk, metadata_log_dir=str(tmp_path / "metadata")) as node:
            await node.create_topic("t", flush_messages="1")
            client, producer = await node.connect(), await node.connect()
            assert await produce(client, "t", 0, b"x") == 0
            source, target = places(node)
            disk.stuck = f"{source}/t-0/"
            await producer.send(produce_request("t", batch(b"y")), 12)
            await until(began.is_set)
            assert await alter(client, target, "t", 0) == [0]
            await until(lambda: places(node)[0] == target)
            go.set()
            _, answer = await producer.receive()
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await offline(client) == {source.name}
            assert await produce(client, "t", 0, b"z") == 0
            assert await consume(client, "t", 0) == [b"x", b"y", b"z"]
    finally:
        go.set()


@pytest.mark.parametrize("operation", ["sync", "open"])
async def test_a_failed_flush_takes_its_dir_offline_and_the_others_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    disk = FaultyDisk()
    begin = PartitionLog.begin_flush

    def begin_flush(log: PartitionLog, **options: Any) -> FlushTask | None:
        disk.check("open", log.active_segment.path)  # as if it were not open any more
        return begin(log, **options)

    monkeypatch.setattr(PartitionLog, "begin_flush", begin_flush)

    async with two_dirs(tmp_path, disk=disk) as node:
        await node.create_topic("t", 4, flush_messages="1")
        client = await node.connect()
        for partition in range(4):
            assert await produce(client, "t", partition, b"before") == 0
        found = await describe(client)
        lost, kept = held(found[TWO]), held(found[ONE])
        assert lost
        assert kept
        disk.broken[(operation, f"/{TWO}/t-")] = errno.EIO
        _, first = min(lost)
        assert await produce(client, "t", first, b"not durable") == ErrorCode.KAFKA_STORAGE_ERROR
        disk.broken.clear()  # what failed once is not tried again and trusted
        for _, partition in lost:
            assert await produce(client, "t", partition, b"x") == ErrorCode.KAFKA_STORAGE_ERROR
            answer = await client.ask(fetch_request("t", [(partition, 0)]), 12)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _, partition in kept:
            assert await produce(client, "t", partition, b"after") == 0
            assert await consume(client, "t", partition) == [b"before", b"after"]
        found = await describe(client)
        assert found[TWO].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert found[ONE].error_code == 0
        moved = sorted(kept)[0][1]
        assert await alter(client, tmp_path / TWO, "t", moved) == [ErrorCode.KAFKA_STORAGE_ERROR]
        await node.create_topic("new", 3)
        assert {("new", 0), ("new", 1), ("new", 2)} <= held((await describe(client))[ONE])

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        for partition in range(4):
            assert (await consume(client, "t", partition))[0] == b"before"


@pytest.mark.parametrize("known", [False, True])
async def test_a_topic_is_deleted_of_which_a_part_is_where_nothing_can_be_renamed(tmp_path: Path, known: bool) -> None:
    """Whether the dir is known to have failed or is not: it alone is offline then."""
    disk = FaultyDisk()

    async with two_dirs(tmp_path, disk=disk) as node:
        await node.create_topic("t", 4, flush_messages="1")
        await node.create_topic("other", 2)
        client = await node.connect()
        for partition in range(4):
            assert await produce(client, "t", partition, b"x") == 0
        found = await describe(client)
        disk.broken[("rename", f"/{TWO}/t-")] = errno.EIO
        if known:
            disk.broken[("sync", f"/{TWO}/t-")] = errno.EIO
            _, first = min(name for name in held(found[TWO]) if name[0] == "t")
            assert await produce(client, "t", first, b"not durable") == ErrorCode.KAFKA_STORAGE_ERROR
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        for name, partition in sorted(held(found[ONE]) | held(found[TWO])):
            failed = ErrorCode.KAFKA_STORAGE_ERROR if (name, partition) in held(found[TWO]) else 0
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name == "t" else failed
            assert await produce(client, name, partition, b"after") == expected
        assert await offline(client) == {TWO}

    disk.broken.pop(("sync", f"/{TWO}/t-"), None)
    for still in ({TWO}, set[str]()):
        if not still:
            disk.broken.clear()
        async with two_dirs(tmp_path, disk=disk) as node:  # which tries once more to rename the leftovers of the topic
            client = await node.connect()
            assert await produce(client, "t", 0, b"x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await offline(client) == still


async def test_a_lone_broker_serves_what_has_moved_off_a_dir_that_fails(tmp_path: Path) -> None:
    """The metadata still name the failed dir for it: a broker that is alone tells the controller of no moves, and so
    of no failures."""
    disk = FaultyDisk()
    one, two = str(tmp_path / ONE), str(tmp_path / TWO)
    async with running_node(tmp_path, log_dirs=two, metadata_log_dir=one) as node:  # so the metadata name it
        await node.create_topic("t", 2, flush_messages="1")
        client = await node.connect()
        for partition in range(2):
            assert await produce(client, "t", partition, b"before") == 0
    async with running_node(tmp_path, env_with(disk), log_dirs=f"{two},{one}", metadata_log_dir=one) as node:
        client = await node.connect()
        assert await alter(client, tmp_path / ONE, "t", 0) == [0]
        while ("t", 0) not in held((await describe(client))[ONE]):
            await trio.sleep(0.01)
        disk.broken["sync", f"/{TWO}/t-"] = errno.EIO
        assert await produce(client, "t", 1, b"lost") == ErrorCode.KAFKA_STORAGE_ERROR
        disk.broken.clear()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await offline(client) == {TWO}
        assert await produce(client, "t", 0, b"after") == 0
        assert await consume(client, "t", 0) == [b"before", b"after"]


async def test_a_full_disk_is_told_and_the_node_goes_on_when_room_is_made(tmp_path: Path) -> None:
    disk = FaultyDisk()
    acknowledged: list[bytes] = []

    async with two_dirs(tmp_path, disk=disk, log_retention_ms="-1") as node:
        await node.create_topic("t")
        client = await node.connect()
        for number in range(5):
            acknowledged.append(b"%d" % number)
            assert await produce(client, "t", 0, acknowledged[-1]) == 0
        disk.broken[("write", f"{places(node)[0]}/t-0")] = errno.ENOSPC
        assert await produce(client, "t", 0, b"no room") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await produce(client, "t", 0, b"still no room") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await consume(client, "t", 0) == acknowledged
        assert await offline(client) == set()
        disk.broken.clear()
        while await produce(client, "t", 0, b"room again") == ErrorCode.KAFKA_STORAGE_ERROR:
            await trio.sleep(0.1)
        acknowledged.append(b"room again")
        assert await consume(client, "t", 0) == acknowledged

    async with two_dirs(tmp_path, log_retention_ms="-1") as node:
        assert await consume(await node.connect(), "t", 0) == acknowledged


async def test_a_dir_that_is_gone_on_the_next_start_takes_only_its_partitions_along(tmp_path: Path) -> None:
    async with two_dirs(tmp_path) as node:
        await node.create_topic("t", 4)
        client = await node.connect()
        for partition in range(4):
            assert await produce(client, "t", partition, b"x") == 0
    lost = {int(path.name[2:]) for path in (tmp_path / TWO).glob("t-*")}
    assert 0 < len(lost) < 4

    class Gone(OsDisk):
        def list_dirs(self, path: str) -> list[str]:
            if path.endswith(TWO):
                raise OSError(errno.EIO, "gone", path)
            return super().list_dirs(path)

    async with two_dirs(tmp_path, disk=Gone()) as node:
        client = await node.connect()
        for partition in range(4):
            code = await produce(client, "t", partition, b"y")
            assert code == (ErrorCode.KAFKA_STORAGE_ERROR if partition in lost else 0), partition

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        for partition in range(4):
            assert (await consume(client, "t", partition))[0] == b"x", "nothing was lost or made anew"


async def test_a_topic_that_was_deleted_and_created_again_while_this_node_was_away(tmp_path: Path) -> None:
    """Its log of the first one is set aside as a stray, or it could never hold the second."""

    async with two_dirs(tmp_path) as node:
        await node.create_topic("t")
        assert await produce(await node.connect(), "t", 0, b"old") == 0
    (log,) = tmp_path.glob("*/t-0")
    kept = tmp_path / "kept"
    shutil.copytree(log, kept)

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        await node.create_topic("t")
    shutil.copytree(kept, log)

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        assert await produce(client, "t", 0, b"new") == 0
        assert await consume(client, "t", 0) == [b"new"]
    (stray,) = tmp_path.glob("*/t-0.*-stray")
    assert (stray / "partition.metadata").exists()


async def test_logs_of_a_cluster_that_has_lost_its_metadata_are_left_alone(tmp_path: Path) -> None:
    """A metadata log that was made anew knows no topic: that deletes none."""

    async with two_dirs(tmp_path) as node:
        topic_id = await node.create_topic("t", 2)
        client = await node.connect()
        for partition in range(2):
            request = produce_request("t", batch(b"x"), partition=partition, topic_id=topic_id)
            assert (await client.ask(request)).responses[0].partition_responses[0].error_code == 0

    logs = {path: (path / "00000000000000000000.log").read_bytes() for path in tmp_path.glob("*/t-*")}
    assert {path.parent.name for path in logs} == {ONE, TWO}
    shutil.rmtree(tmp_path / ONE / "__cluster_metadata-0")
    for name in (ONE, TWO):
        (tmp_path / name / "meta.properties").unlink()  # and so it is formatted again, with the same cluster id
    for _ in range(2):
        with pytest.raises(BaseException) as caught:
            async with two_dirs(tmp_path):
                pass
        assert isinstance(find_fatal(caught.value), LogDirFailure)
        assert "know none of their topics" in str(find_fatal(caught.value))
    assert {path: (path / "00000000000000000000.log").read_bytes() for path in tmp_path.glob("*/t-*")} == logs


async def test_a_checkpoint_that_cannot_be_written_takes_its_dir_offline_and_the_others_live_on(tmp_path: Path) -> None:
    """It is written in a thread, and listeners for a failed dir wake tasks."""
    disk = FaultyDisk()

    async with two_dirs(tmp_path, disk=disk, replica_high_watermark_checkpoint_interval_ms="20") as node:
        await node.create_topic("t", 4)
        client = await node.connect()
        found = await describe(client)
        for partition in range(4):
            assert await produce(client, "t", partition, b"before") == 0
        disk.broken[("rename", f"/{TWO}/recovery-point-offset-checkpoint")] = errno.EIO
        while not await offline(client):
            await trio.sleep(0.01)
        lost = held(found[TWO])
        assert 0 < len(lost) < 4
        for partition in range(4):
            expected = ErrorCode.KAFKA_STORAGE_ERROR if ("t", partition) in lost else 0
            assert await produce(client, "t", partition, b"after") == expected
        assert await offline(client) == {TWO}


async def test_a_topic_whose_log_cannot_be_opened_is_deleted_and_created_again(tmp_path: Path) -> None:
    """To delete it is what is left to do about it; nothing of it may come back with the next topic of its name."""

    async with two_dirs(tmp_path) as node:
        await node.create_topic("t")
        client = await node.connect()
        assert await produce(client, "t", 0, b"old", b"older") == 0
    (damaged,) = tmp_path.glob("*/t-0/partition.metadata")
    damaged.write_bytes(b"nonsense")
    (damaged.parent / "topic-id").unlink()

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        assert await produce(client, "t", 0, b"x") == ErrorCode.KAFKA_STORAGE_ERROR
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        await node.create_topic("t")
        assert await produce(client, "t", 0, b"new") == 0
        assert await consume(client, "t", 0) == [b"new"]

    async with two_dirs(tmp_path) as node:
        assert await consume(await node.connect(), "t", 0) == [b"new"]


async def test_a_dir_comes_back_with_logs_of_a_topic_that_has_a_successor_by_now(tmp_path: Path) -> None:
    """Only the metadata tell which of two topics of one name is the present one."""
    disk = FaultyDisk()

    async with two_dirs(tmp_path, disk=disk) as node:
        await node.create_topic("t", 2)
        client = await node.connect()
        for partition in range(2):
            assert await produce(client, "t", partition, b"old", b"older") == 0
        disk.broken[("rename", f"/{TWO}/t-")] = errno.EIO
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        assert await offline(client) == {TWO}
        await node.create_topic("t", 2)
        for partition in range(2):
            assert await produce(client, "t", partition, b"new") == 0
    assert {path.parent.name for path in tmp_path.glob("*/t-?")} == {ONE, TWO}

    async with two_dirs(tmp_path) as node:
        client = await node.connect()
        for partition in range(2):
            assert await consume(client, "t", partition) == [b"new"]
    (stray,) = tmp_path.glob("*/t-*-stray")
    assert stray.parent.name == TWO
