"""The log directory of each replica, as the controller is told (KIP-858)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.node.replicas.directory_assignments import DirectoryAssignments
from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.raft_metadata.metadata_version import DIRECTORIES, LATEST_METADATA_VERSION
from kbroker.runtime.budgets import DEFAULTS
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.log_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kbroker.wire.record_batch import Record, build_batch

TOPIC = Uuid(b"t" * 16)
FIRST, SECOND, UNKNOWN = Uuid(b"1" * 16), Uuid(b"2" * 16), Uuid(bytes(16))


class Node:
    """Partitions 0 to 3 of a topic: where they are, and where the controller believes them."""

    def __init__(
        self, where: dict[int, Uuid | None], believed: dict[int, Uuid], *, dirs: int = 2, damaged: Sequence[int] = ()
    ) -> None:
        self.believed = believed
        self.asked: list[AssignReplicasToDirsRequest] = []
        self.answers: list[ErrorCode | None] = []
        self.level = LATEST_METADATA_VERSION
        self.where = where
        self.awaited = 0
        self.damaged = damaged
        partitions = {
            TopicPartition("t", index): SimpleNamespace(
                topic_partition=TopicPartition("t", index),
                topic_id=TOPIC,
                is_damaged=index in self.damaged,
                awaits_election=self.awaiting,
            )
            for index in where
        }
        self.manager: Any = SimpleNamespace(
            env=SimpleNamespace(budgets=DEFAULTS),
            node_id=1,
            partitions=partitions,
            behind={},
            metadata=SimpleNamespace(until_in_step=trio.lowlevel.checkpoint),
            log_dirs=SimpleNamespace(
                directory_of=lambda partition, isr: self.where[partition.topic_partition.partition]
            ),
            log_manager=SimpleNamespace(log_dirs=[None] * dirs, on_offline=[]),
        )

    def awaiting(self, assigned: object) -> bool:
        """Whether an election is still waited for: until so many reports were sent."""
        return len(self.asked) < self.awaited

    def image(self) -> Any:
        assigned = {
            index: SimpleNamespace(directory=lambda broker, index=index: self.believed[index], isr=(1,))
            for index in self.believed
        }
        features = SimpleNamespace(metadata_version=self.level)
        topics = SimpleNamespace(by_id={TOPIC: SimpleNamespace(name="t", partitions=assigned)})
        return SimpleNamespace(features=features, topics=topics)

    async def ask(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | None:
        self.asked.append(request)
        error = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if error is None:
            return None
        if error == ErrorCode.NONE:
            for directory in request.directories:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        self.believed[partition.partition_index] = Uuid(directory.id)
        return AssignReplicasToDirsResponse(error_code=error)

    def run(self, seconds: float) -> None:
        async def main() -> None:
            with trio.move_on_after(seconds):
                await DirectoryAssignments(self.manager, self.image, lambda: 7, self.ask).run()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    def told(self) -> list[tuple[Uuid, list[int]]]:
        (request,) = self.asked[-1:]
        return [
            (Uuid(directory.id), [partition.partition_index for partition in directory.topics[0].partitions])
            for directory in request.directories
        ]


def test_only_what_the_controller_does_not_know_is_told_and_only_once() -> None:
    node = Node(
        {0: FIRST, 1: SECOND, 2: SECOND, 3: None, 4: FIRST},
        {0: FIRST, 1: UNKNOWN, 2: FIRST, 3: UNKNOWN},  # 3 has no log yet, 4 is not in the metadata
    )
    node.run(60)
    assert len(node.asked) == 1 and node.told() == [(SECOND, [1, 2])]
    assert (node.asked[0].broker_id, node.asked[0].broker_epoch) == (1, 7)


def test_it_is_told_again_until_the_controller_has_taken_it() -> None:
    node = Node({0: FIRST}, {0: UNKNOWN})
    node.answers = [None, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
    node.run(60)
    assert len(node.asked) == 4 and node.believed == {0: FIRST}


def test_a_log_that_moves_is_told_without_news_from_the_metadata() -> None:
    node = Node({0: FIRST}, {0: FIRST})
    node.run(1)
    assert not node.asked
    node.where[0] = SECOND
    node.run(1)
    assert node.told() == [(SECOND, [0])]


def test_a_replica_that_is_not_elected_is_told_once_more_though_the_controller_knows_its_directory() -> None:
    node = Node({0: FIRST}, {0: FIRST})
    node.awaited = 1
    node.run(60)
    assert len(node.asked) == 1 and node.told() == [(FIRST, [0])]


def test_nobody_is_asked_at_a_level_that_knows_no_directories() -> None:
    node = Node({0: FIRST}, {0: UNKNOWN})
    node.level = DIRECTORIES - 1
    node.run(60)
    assert not node.asked
    node.level = DIRECTORIES
    node.run(1)
    assert node.believed == {0: FIRST}


async def test_one_directory_is_no_news_but_a_lost_replica_is(autojump_clock: trio.testing.MockClock) -> None:
    node = Node({0: FIRST, 1: FIRST}, {0: FIRST, 1: FIRST}, dirs=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(DirectoryAssignments(node.manager, node.image, lambda: 7, node.ask).run)
        await trio.sleep(60)
        assert not node.asked
        for directory in (DIR_LOST, FIRST):
            node.where[1] = directory
            [failed] = node.manager.log_manager.on_offline
            failed()
            await trio.sleep(1)
            assert node.told() == [(directory, [1])]
        assert len(node.asked) == 2
        nursery.cancel_scope.cancel()


def test_a_damaged_replica_is_said_to_be_damaged_while_it_is_lost() -> None:
    node = Node({0: DIR_LOST, 1: DIR_LOST, 2: FIRST}, {0: FIRST, 1: FIRST, 2: UNKNOWN}, damaged=[0, 2])
    node.run(1)
    said = {
        (Uuid(directory.id), entry.partition_index): entry.is_damaged
        for directory in node.asked[0].directories
        for topic in directory.topics
        for entry in topic.partitions
    }
    assert said == {(DIR_LOST, 0): True, (DIR_LOST, 1): False, (FIRST, 2): False}


def test_a_replica_that_goes_while_others_are_looked_at_is_not_told() -> None:
    node = Node({0: FIRST, 1: FIRST}, {0: UNKNOWN, 1: UNKNOWN})
    node.manager.env.budgets = DEFAULTS._replace(turn_isrs=1)
    node.manager.log_dirs.directory_of = lambda partition, isr: gone(partition.topic_partition)

    def gone(looked_at: TopicPartition) -> Uuid:
        node.manager.partitions.pop(TopicPartition("t", 1), None)
        return FIRST

    node.run(1)
    assert node.told() == [(FIRST, [0])]


def test_a_log_is_not_lost_because_another_dir_has_something_of_its_name() -> None:
    """A power cut may leave both directories of a log that was just moved, the old one without a topic id; or somebody
    has made one. Such a replica was out of the ISR for good."""
    disk, tp = FakeDisk(), TopicPartition("t", 0)
    manager = LogManager.open(["/one", "/two"], disk, now_ms=0, cluster_id="c", node_id=1)
    log = manager.create_log(tp, TOPIC, LogConfig())
    log.append_as_leader(build_batch([Record(0, 1, None, b"value")]), 0, now_ms=1)
    assert manager.log_dir_of(tp) is manager.log_dirs[0]
    manager.close()
    disk.make_dir("/two/t-0")
    disk.write_bytes("/two/t-0/something", b"else")
    manager = LogManager.open(["/one", "/two"], disk, now_ms=0, cluster_id="c", node_id=1)
    assert tp in manager.failed
    log_dirs = ReplicaLogDirs(
        env=None,  # type: ignore[arg-type]
        log_manager=manager,
        table=SimpleNamespace(node_id=1),  # type: ignore[arg-type]
        progress=None,  # type: ignore[arg-type]
        checkpoints=None,  # type: ignore[arg-type]
        high_watermarks={},
    )
    partition: Any = SimpleNamespace(topic_partition=tp, must_give_way=lambda assigned: False)
    found = log_dirs.directory_of(partition, SimpleNamespace(isr=(1, 2)))  # type: ignore[arg-type]
    assert found == manager.log_dirs[0].directory_id is not None
