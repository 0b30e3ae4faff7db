"""An image may change thousands of partitions, which come into step in turns: nobody ever meets one that has not."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.runtime.env import RealEnv
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.records import metadata as rec
from tests.node.node_harness import PATIENT, batch, configuration, run, running_node
from tests.node.quorum_harness import three_nodes
from tests.node.test_replication import create, leader_of

ME, OTHER = 1, 2
FIRST, SECOND = Uuid(bytes(15) + b"\x01"), Uuid(bytes(15) + b"\x02")


class Follower:
    """A node's partitions, and the metadata that they follow."""

    def __init__(self, path: Path, turn_partitions: int, disk: FakeDisk | None = None) -> None:
        logs = LogManager.open(["/data"], disk or FakeDisk(), now_ms=1, rng=random.Random(1))
        config: Any = configuration(path)
        self.manager = ReplicaManager(
            node_id=ME,
            env=RealEnv(seed=1, budgets=PATIENT._replace(turn_partitions=turn_partitions)),
            config=config,
            log_manager=logs,
            topic_log_config=lambda configs: LogConfig(),
        )
        self.logs = logs
        self.image: MetadataImage = EMPTY_IMAGE
        self._offset = count()

    def publish(self, *records: object) -> None:
        """The next image, with no turn for anybody before it has been heard of."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(OffsetAndEpoch(next(self._offset), 1))
        self.manager.metadata.on_image(delta, self.image)

    def append(self, index: int) -> None:
        """A record for a partition of the topic, as its leader takes it."""
        self.manager.get_leader("t", index).append(memoryview(bytearray(batch(b"x"))), 1, 1000)

    def state(self) -> dict[tuple[str, int], tuple[Any, ...]]:
        """All partitions, as they are."""
        found = {}
        for key, partition in self.manager.partitions.items():
            state = partition.state
            epochs = state.leader, state.leader_epoch, state.partition_epoch
            found[key] = partition.topic_id, *epochs, partition.log.topic_id, partition.log.log_end_offset
        assert {log.topic_partition for log in self.logs.iter_logs_in(self.logs.log_dirs[0])} == found.keys()
        return found


def topic(topic_id: Uuid, partitions: int, name: str = "t") -> list[object]:
    return [
        rec.TopicRecord(name=name, topic_id=topic_id),
        *(
            rec.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[ME, OTHER], isr=[ME, OTHER], leader=ME, leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ),
    ]  # fmt: skip


def changed(topic_id: Uuid, index: int, **change: Any) -> rec.PartitionChangeRecord:
    return rec.PartitionChangeRecord(partition_id=index, topic_id=topic_id, **change)


def refusal(ask: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        ask()
    return raised.value.code


async def test_whoever_asks_gets_a_partition_as_the_latest_image_has_it(tmp_path: Path) -> None:
    follower = Follower(tmp_path, 4)
    manager = follower.manager
    follower.publish()
    follower.publish(*topic(FIRST, 20))
    assert not manager.partitions and len(manager.behind) == 20
    follower.append(19)
    assert refusal(lambda: manager.get_partition("t", 20)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Deleted and made anew before its first life has been made: nothing of that is left.
    follower.publish(rec.RemoveTopicRecord(topic_id=FIRST))
    follower.publish(*topic(SECOND, 10))
    assert refusal(lambda: manager.get_partition("t", 19)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert manager.find("t", 15) is None and manager.get_leader("t", 3).topic_id == SECOND
    follower.append(9)
    # Another leads, and this node again; a partition has moved away.
    follower.publish(changed(SECOND, 9, leader=OTHER), *(changed(SECOND, each, leader=OTHER) for each in range(8)))
    assert refusal(lambda: manager.get_leader("t", 9)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    follower.publish(changed(SECOND, 9, leader=ME), changed(SECOND, 8, replicas=[OTHER], isr=[OTHER], leader=OTHER))
    assert refusal(lambda: manager.get_leader("t", 9, 1)) is ErrorCode.FENCED_LEADER_EPOCH
    assert manager.get_leader("t", 9, 2).log.log_end_offset == 1
    assert refusal(lambda: manager.get_partition("t", 8)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert manager.behind
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await manager.metadata.until_in_step()
        nursery.cancel_scope.cancel()
    assert not manager.behind and {index for _, index in manager.partitions} == {*range(8), 9}
    assert all(follower.state()["t", index][:3] == (SECOND, OTHER, 1) for index in range(8))


@pytest.mark.parametrize("seed", range(20))
async def test_the_turns_end_where_one_step_would(tmp_path: Path, seed: int) -> None:
    """Topics come, go and come again, leaders change, partitions move: in whatever order others ask meanwhile."""
    rng = random.Random(seed)
    at_once, in_turns = Follower(tmp_path, 1000), Follower(tmp_path, rng.randint(1, 3))
    ids = (Uuid(number.to_bytes(16, "big")) for number in count(1))
    there: dict[Uuid, tuple[str, int]] = {}
    for follower in (at_once, in_turns):
        follower.publish()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_turns.manager.run)
        for _ in range(40):
            records: list[object] = []
            for _ in range(rng.randint(1, 3)):
                name = rng.choice("tuv")
                topic_id = next((each for each, (other, _) in there.items() if other == name), None)
                if topic_id is None:
                    topic_id = next(ids)
                    there[topic_id] = name, rng.randint(1, 12)
                    records += topic(topic_id, there[topic_id][1], name)
                elif rng.random() < 0.4:
                    del there[topic_id]
                    records.append(rec.RemoveTopicRecord(topic_id=topic_id))
                else:
                    replicas = rng.choice([[ME, OTHER], [OTHER]])
                    for index in range(there[topic_id][1]):
                        leader = rng.choice(replicas)
                        records.append(changed(topic_id, index, replicas=replicas, isr=replicas, leader=leader))
            for follower in (at_once, in_turns):
                follower.publish(*records)
            if rng.random() < 0.5:
                key = rng.choice("tuv"), rng.randrange(12)
                answers = [follower.manager.find(*key) for follower in (at_once, in_turns)]
                assert len({each and (each.topic_id, each.state.leader_epoch) for each in answers}) == 1
            for _ in range(rng.choice([0, 0, 1, 5])):
                await trio.lowlevel.checkpoint()
        await in_turns.manager.metadata.until_in_step()
        nursery.cancel_scope.cancel()
    assert in_turns.state() == at_once.state()


def test_a_client_uses_a_topic_that_is_half_made(tmp_path: Path) -> None:
    """It need not try again: the last of five hundred partitions is there, as soon as the topic is."""

    async def main() -> None:
        env = RealEnv(budgets=PATIENT._replace(turn_partitions=1))
        async with running_node(tmp_path, env) as node:
            topic_id = await node.create_topic("t", 500)
            manager = node.broker.replica_manager
            assert manager.behind
            wanted = [499, 7, 300]
            parts = [PartitionProduceData(index=index, records=memoryview(batch(b"x"))) for index in wanted]
            client = await node.connect()
            data = [TopicProduceData(topic_id=topic_id, partition_data=parts)]
            answer = await client.ask(ProduceRequest(acks=1, timeout_ms=20_000, topic_data=data))
            assert [each.error_code for each in answer.responses[0].partition_responses] == [0, 0, 0]
            await manager.metadata.until_in_step()
            assert sum(1 for topic, _ in manager.partitions if topic == "t") == 500

    run(main)


def test_leaders_go_to_other_nodes_while_their_topic_is_half_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, budgets=PATIENT._replace(turn_partitions=1)) as cluster:
            topic_id = await create(cluster, "t", partitions=200)
            await cluster.kill(max(cluster.nodes))
            left = sorted(cluster.nodes)
            await cluster.until(lambda: all(leader_of(cluster, "t", index) in left for index in range(200)))
            await cluster.until(lambda: len({cluster.nodes[each].metadata.image.offset for each in left}) == 1)
            for node_id in left:
                led = [index for index in range(200) if leader_of(cluster, "t", index) == node_id]
                parts = [PartitionProduceData(index=index, records=memoryview(batch(b"x"))) for index in led]
                client = await cluster.node(node_id).connect()
                data = [TopicProduceData(topic_id=topic_id, partition_data=parts)]
                answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data))
                assert {each.error_code for each in answer.responses[0].partition_responses} == {0}

    run(main)


@pytest.mark.parametrize("returns", [True, False])
async def test_a_log_goes_with_its_topic_before_its_partition_is_made(tmp_path: Path, returns: bool) -> None:
    """A node that was away starts with images of long ago, and reads at once what has become of their topics."""
    disk = FakeDisk()
    before = Follower(tmp_path, 100, disk)
    before.publish()
    before.publish(*topic(FIRST, 9), *topic(SECOND, 1, "other"))
    for index in range(9):
        before.append(index)
    before.logs.close()
    after = Follower(tmp_path, 1, disk)
    manager = after.manager
    after.publish(*topic(FIRST, 9), *topic(SECOND, 1, "other"))
    assert manager.behind
    after.publish(changed(FIRST, 8, replicas=[OTHER], isr=[OTHER], leader=OTHER))
    third = Uuid(bytes(15) + b"\x03")
    after.publish(rec.RemoveTopicRecord(topic_id=FIRST), *(topic(third, 8) if returns else ()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await manager.metadata.until_in_step()
        nursery.cancel_scope.cancel()
    left = {index: each[0] for (name, index), each in after.state().items() if name == "t"}
    assert left == (dict.fromkeys(range(8), third) if returns else {})
    for index in left:
        log = manager.get_leader("t", index).log
        assert log.topic_id == third and log.log_end_offset == 0


async def test_what_a_log_has_of_epochs_to_come_is_put_right_before_it_leads(tmp_path: Path) -> None:
    """That is in steps, as it may be a gigabyte: until then nobody is served, and others are."""
    disk = FakeDisk()
    before = Follower(tmp_path, 100, disk)
    before.publish()
    before.publish(*topic(FIRST, 2))
    before.append(1)
    for leader in (OTHER, ME):
        before.publish(changed(FIRST, 0, leader=leader))
    for _ in range(1000):
        before.append(0)
    before.logs.close()
    # The metadata are older now, as where they are restored from a copy.
    after = Follower(tmp_path, 100, disk)
    manager = after.manager
    after.publish(*topic(FIRST, 2))
    log = manager.get_partition("t", 0).log
    assert log.leader_epochs.latest == 2
    assert refusal(lambda: manager.get_leader("t", 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    after.append(1)
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        while not manager.get_partition("t", 0).state.is_leader:
            await trio.lowlevel.checkpoint()
            turns += 1
        nursery.cancel_scope.cancel()
    assert turns > 5 and log.leader_epochs.latest == 0 and log.log_end_offset == 1000
    after.append(0)
