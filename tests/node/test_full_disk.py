"""A log dir on a file system of a few MB that runs full, under the command and a stock client, again and again.

Needs to mount a file system (root on Linux), and is skipped where that is not allowed. KBROKER_FULL_DISKS sets how
often the disk is filled (once by default).
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.cluster import Client
from kbroker.testing import running_cluster
from kbroker.wire.messages.log_dirs import DescribeLogDirsRequest
from tests.node.process_harness import TO_THE_END, CommandNode
from tests.node.small_disk import MIB, ROUNDS, mounted, take_all_but
from tests.patience import LONG, eventually

confluent_kafka: Any = pytest.importorskip("confluent_kafka")
admin: Any = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 4


FULL = "is full: nothing is written for clients there"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A directory on a small file system."""
    with mounted(tmp_path / "small") as path:
        yield path


class Node(CommandNode):
    """A log dir of little room and, unless told otherwise, one with room, where the metadata is."""

    def __init__(self, directory: Path, small: Path, *, alone: bool = False) -> None:
        self.small, self.large = small / "data", directory / "large"
        places = [self.small] if alone else [self.small, self.large]
        settings = {
            "log.dirs": ",".join(map(str, places)),
            "metadata.log.dir": str(places[-1]),
            "log.segment.bytes": str(MIB),
            "log.segment.delete.delay.ms": "100",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.enable": "false",
        }
        super().__init__(directory, settings)

    def partitions_in(self, place: Path) -> set[int]:
        return {int(path.name.rpartition("-")[2]) for path in place.glob("t-*") if path.is_dir()}

    def told(self) -> dict[str, int]:
        """The error code of each log dir, as DescribeLogDirs tells it."""
        with Client(self.bootstrap) as client:
            answer = client.ask_node(1, DescribeLogDirsRequest(topics=None))
        return {result.log_dir: result.error_code for result in answer.results}


@pytest.fixture
def node(tmp_path: Path, small: Path) -> Iterator[Node]:
    node = Node(tmp_path, small)
    node.start()
    yield node
    if node.lives:
        node.stop(kill=True)


class Load:
    """A stock client that writes to all partitions, and what it was told."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, dict[int, bytes]] = {partition: {} for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self.sent = 0
        self.rng = random.Random(5)
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "message.timeout.ms": 300_000,
                "log_level": 0,
            }
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()][message.offset()] = message.value()
        else:
            self.failed.append(str(error))

    def write(self, partition: int) -> None:
        value = b"%d-" % self.sent + self.rng.randbytes(self.rng.randrange(2_000))
        self.producer.produce("t", value, partition=partition, on_delivery=self._delivered)
        self.sent += 1

    def count(self, partition: int) -> int:
        return len(self.acknowledged[partition])

    def wait(self, partitions: set[int], counts: dict[int, int]) -> None:
        """Until each has more than that many acknowledged."""
        deadline = time.monotonic() + LONG
        while any(self.count(partition) <= counts[partition] for partition in partitions):
            self.producer.poll(0.05)
            assert time.monotonic() < deadline, (partitions, counts, self.failed)

    def counts(self) -> dict[int, int]:
        return {partition: self.count(partition) for partition in self.acknowledged}


def read(bootstrap: str, partition: int) -> dict[int, bytes]:
    """All that a stock consumer gets."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "check.crcs": True, **TO_THE_END}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", partition, 0)])
    found: dict[int, bytes] = {}
    try:
        while True:
            message = consumer.poll(LONG)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found[message.offset()] = message.value()
    finally:
        consumer.close()


def read_in_group(bootstrap: str, group: str) -> int:
    """The number of records that a group of one gets, and has committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **TO_THE_END,
        }
    )
    consumer.subscribe(["t"])
    count = 0
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(LONG)
            assert message is not None
            if message.error() is None:
                count += 1
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended.add(message.partition())
        assert all(each.error is None for each in consumer.commit(asynchronous=False))
    finally:
        consumer.close()
    return count


def fill(node: Node, load: Load, times: int) -> None:
    """Write until the node has said so many times that its disk is full."""
    deadline = time.monotonic() + LONG
    while node.log.count(FULL) < times:
        for _ in range(20):
            load.write(load.rng.randrange(PARTITIONS))
            load.producer.poll(0)
        load.producer.poll(0.05)
        assert time.monotonic() < deadline, "the disk did not run full"
        assert node.lives


@pytest.mark.slow
def test_a_file_system_that_is_full(node: Node, small: Path) -> None:
    rng = random.Random(11)
    asking = admin.AdminClient({"bootstrap.servers": node.bootstrap})
    for future in asking.create_topics([admin.NewTopic("t", PARTITIONS, 1)]).values():
        future.result()
    load = Load(node.bootstrap)
    everything = set(range(PARTITIONS))
    for partition in everything:
        load.write(partition)
    load.wait(everything, dict.fromkeys(everything, 0))
    hit, spared = node.partitions_in(node.small), node.partitions_in(node.large)
    assert hit | spared == everything
    assert hit
    assert spared
    for number in range(ROUNDS):
        ballast = take_all_but(small, rng.randrange(1_000, 400_000))
        for restarts in (False, True):
            if restarts:
                node.stop(kill=number % 2 == 0)
                node.start()
            fill(node, load, 2 * number + restarts + 1)
            # The other dir goes on, and what is in the full one is read.
            before = load.counts()
            for partition in everything:
                load.write(partition)
            load.wait(spared, before)
            deadline = time.monotonic() + LONG
            while load.producer.flush(1) == 0:  # some may find room in the reserve before the others are refused
                for partition in hit:
                    load.write(partition)
                assert time.monotonic() < deadline, "all is acknowledged"
            for partition in hit:
                assert read(node.bootstrap, partition).items() >= load.acknowledged[partition].items()
            assert node.told() == {str(node.small): 0, str(node.large): 0}
        assert not load.failed, "a stock client tries again"
        # Room is made, and everything goes on, what waited included.
        ballast.unlink()
        assert load.producer.flush(LONG) == 0
        assert not load.failed
    assert sum(load.counts().values()) == load.sent
    for partition in everything:
        assert read(node.bootstrap, partition) == load.acknowledged[partition], "each once, in order, nothing else"
    node.stop(kill=False)


@pytest.mark.slow
def test_the_only_log_dir_is_full(tmp_path: Path, small: Path) -> None:
    """The metadata log is on the full disk, too. The node serves readers and groups, also after a stop and after a
    kill, and goes on when retention has made room."""
    node = Node(tmp_path, small, alone=True)
    node.start()
    try:
        asking = admin.AdminClient({"bootstrap.servers": node.bootstrap})
        for future in asking.create_topics([admin.NewTopic("t", PARTITIONS, 1)]).values():
            future.result()
        load = Load(node.bootstrap)
        take_all_but(small, 6 * MIB)
        for round in range(3):
            if round:
                node.stop(kill=round == 2)
                node.start()
            fill(node, load, round + 1)
            for partition in range(PARTITIONS):
                assert read(node.bootstrap, partition).items() >= load.acknowledged[partition].items()
            assert read_in_group(node.bootstrap, f"g{round}") >= sum(load.counts().values())
            told = subprocess.run(
                [sys.executable, "-m", "kbroker", "produce", "t", "-b", node.bootstrap],
                input="x\n",
                capture_output=True,
                text=True,
                check=False,
            )
            assert told.returncode == 1
            assert "the broker has trouble with its disk" in told.stderr
        for partition in range(PARTITIONS):
            load.write(partition)
        assert load.producer.flush(1)
        assert not load.failed
        # The metadata can still be changed: that is how room is made.
        changed = admin.ConfigResource(
            admin.ConfigResource.Type.TOPIC,
            "t",
            incremental_configs=[
                admin.ConfigEntry("retention.bytes", str(MIB // 2), incremental_operation=admin.AlterConfigOpType.SET)
            ],
        )
        for future in asking.incremental_alter_configs([changed]).values():
            future.result()
        assert load.producer.flush(LONG) == 0
        assert not load.failed
        assert sum(load.counts().values()) == load.sent
        assert node.log.count("has room again") == 1
        node.stop(kill=False)
    finally:
        if node.lives:
            node.stop(kill=True)


@pytest.mark.slow
def test_the_disk_of_the_metadata_log_alone_is_full(tmp_path: Path, small: Path) -> None:
    """Its reserve is made anew as soon as there is room."""
    node = CommandNode(tmp_path, {"log.dirs": str(tmp_path / "large"), "metadata.log.dir": str(small / "metadata")})
    node.start()
    try:
        asking = admin.AdminClient({"bootstrap.servers": node.bootstrap})
        ballast = take_all_but(small, 0)
        count = 0
        while FULL not in node.log:
            for future in asking.create_topics([admin.NewTopic(f"t{count}", 10, 1)]).values():
                future.result()
            count += 1
        ballast.unlink()
        eventually(lambda: "has room again" in node.log)
        assert len(list((small / "metadata").glob(".reserve.*"))) == 4
        node.stop(kill=False)
    finally:
        if node.lives:
            node.stop(kill=True)


@pytest.mark.slow
def test_a_snapshot_that_is_larger_than_the_reserve_ends_no_node(tmp_path: Path, small: Path) -> None:
    """The metadata log goes on without it, and the node starts again, until there is room."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": "60000", "log.dirs": str(tmp_path / "large")}
    node = CommandNode(tmp_path, {**settings, "metadata.log.dir": str(small / "metadata")})
    node.start()
    try:
        asking = admin.AdminClient({"bootstrap.servers": node.bootstrap})

        def create(name: str, partitions: int) -> None:
            for future in asking.create_topics([admin.NewTopic(name, partitions, 1)]).values():
                future.result()

        create("large", 3_000)
        eventually(lambda: "wrote metadata snapshot" in node.log)
        ballast = take_all_but(small, 0)
        count = 0
        while "no room for the metadata snapshot" not in node.log:
            create(f"t{count}", 50)
            count += 1
        create("after", 1)
        node.stop(kill=False)
        node.start()
        create("again", 1)
        ballast.unlink()
        eventually(lambda: "has room again" in node.log)
        node.stop(kill=False)
    finally:
        if node.lives:
            node.stop(kill=True)


@pytest.mark.slow
@pytest.mark.everything
def test_the_disk_of_one_node_of_three_is_full(tmp_path: Path) -> None:
    """Others lead, and all is acknowledged. The node starts on the full disk, too, and follows when there is room."""
    data = tmp_path / "nodes"
    data.mkdir()
    with (
        mounted(data / "node-3") as small,
        running_cluster(3, {"num.partitions": PARTITIONS}, data_dir=data) as cluster,
    ):
        node = cluster.node(3)
        asking = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in asking.create_topics([admin.NewTopic("t", PARTITIONS, 3)]).values():
            future.result()
        load = Load(cluster.bootstrap_servers)
        everything = set(range(PARTITIONS))
        for partition in everything:
            load.write(partition)
        load.wait(everything, dict.fromkeys(everything, 0))
        cluster.await_in_sync()
        ballast = take_all_but(small, 100_000)
        deadline = time.monotonic() + LONG
        while FULL not in node.log:
            load.write(load.rng.randrange(PARTITIONS))
            load.producer.poll(0.01)
            assert time.monotonic() < deadline, "the disk did not run full"
        for restarts in (False, True):
            if restarts:
                node.kill()
                node.start()
            before = load.counts()
            for partition in everything:
                load.write(partition)
            load.wait(everything, before)
            for partition in everything:
                assert cluster.leader_of("t", partition) is not node
        assert node.is_running
        ballast.unlink()
        assert load.producer.flush(LONG) == 0
        assert not load.failed
        cluster.await_in_sync()
        for partition in everything:
            assert read(cluster.bootstrap_servers, partition) == load.acknowledged[partition]


@pytest.mark.slow
@pytest.mark.everything
def test_the_disk_of_one_node_of_three_has_no_room_for_the_metadata(tmp_path: Path) -> None:
    """It stays, and goes on from the snapshot that it was to fetch when there is room."""
    data = tmp_path / "nodes"
    data.mkdir()
    settings = {"metadata.log.max.record.bytes.between.snapshots": "60000"}
    with mounted(data / "node-3") as small, running_cluster(3, settings, data_dir=data) as cluster:
        node = cluster.node(3)
        node.kill()
        asking = admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for count in range(5):
            for future in asking.create_topics([admin.NewTopic(f"t{count}", 700, 2)]).values():
                future.result()
        ballast = take_all_but(small, 0)
        node.start(wait=False)
        eventually(lambda: "no room for the metadata of leader" in node.log or not node.is_running)
        assert node.is_running
        ballast.unlink()
        eventually(lambda: "goes on from the leader's snapshot" in node.log)
        node.await_ready()
        for future in asking.create_topics([admin.NewTopic("everywhere", 1, 3)]).values():
            future.result()
        cluster.await_in_sync()
