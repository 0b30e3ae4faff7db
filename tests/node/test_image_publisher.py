"""Large changes and snapshots are read into images in turns, and published as a whole."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kbroker.errors import FatalError
from kbroker.node.controller.image_publisher import ImagePublisher
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import encode_snapshot
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.sim.quorum.disk import MemoryStore, SimSnapshots
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import PartitionRecord, TopicRecord

PARTITIONS = 1000
ENV = RealEnv(seed=1, budgets=DEFAULTS._replace(turn_records=16))


def a_topic(number: int) -> list[object]:
    """The records of a topic, the last of which is the whole change's."""
    topic_id = Uuid(number.to_bytes(16, "big"))
    partitions = [
        PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0)
        for index in range(PARTITIONS)
    ]
    return [TopicRecord(name=f"t{number}", topic_id=topic_id), *partitions]


def append(log: ReplicatedLog, records: list[object]) -> None:
    log.append_records(records, 1, timestamp_ms=0, metadata_version=30)


def followed(log: ReplicatedLog) -> tuple[ImagePublisher, list[list[int]]]:
    """A publisher of the log's images, and how many partitions each topic of an image has."""
    images, seen = ImagePublisher(log, lambda: 1), []

    def on_image(delta: MetadataDelta, image: MetadataImage) -> None:
        seen.append([len(topic.partitions) for topic in image.topics.by_id.values()])

    images.subscribe(on_image)
    return images, seen


async def turns_of_others(images: ImagePublisher, end_offset: int) -> int:
    """Read to an offset; how many turns another task had meanwhile."""
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await images.read_in_turns(end_offset, 1, ENV)
        done = True
    return turns


async def test_a_large_change_is_read_in_turns_and_published_once() -> None:
    log = ReplicatedLog(MemoryStore())
    images, seen = followed(log)
    append(log, a_topic(1))
    append(log, a_topic(2))
    end = log.end_offset
    assert await turns_of_others(images, PARTITIONS + 1) >= 4
    assert await turns_of_others(images, end) >= 4
    assert seen == [[PARTITIONS], [PARTITIONS] * 2] and images.next_offset == end
    images.read_to(end, 1)
    await images.read_in_turns(end, 1, ENV)
    assert len(seen) == 2


async def test_a_snapshot_is_read_in_turns() -> None:
    snapshots = SimSnapshots()
    log = ReplicatedLog(MemoryStore(), snapshots)
    images, seen = followed(log)
    append(log, a_topic(1))
    images.read_to(log.end_offset, 1)
    snapshot_id = OffsetAndEpoch(5 * PARTITIONS, 3)
    data = encode_snapshot([*a_topic(2), *a_topic(3)], now_ms=0, last_contained_log_timestamp=7)
    log.write_snapshot_chunk(snapshot_id, 0, data)
    log.install_snapshot(snapshot_id, log.finish_snapshot(snapshot_id))
    append(log, a_topic(4))
    assert await turns_of_others(images, log.end_offset) >= 6
    assert seen[1:] == [[PARTITIONS] * 2, [PARTITIONS] * 3] and images.image.offset == log.end_offset - 1
    assert images.snapshots_loaded == 1


async def test_who_is_cancelled_leaves_nothing_half_read() -> None:
    log = ReplicatedLog(MemoryStore())
    images, seen = followed(log)
    append(log, a_topic(1))
    with trio.CancelScope() as scope:
        scope.cancel()
        await images.read_in_turns(log.end_offset, 1, ENV)
    append(log, a_topic(2))
    await images.read_in_turns(log.end_offset, 1, ENV)
    assert seen == [[PARTITIONS], [PARTITIONS] * 2]


async def test_a_record_that_cannot_be_read_ends_the_node_in_a_line() -> None:
    class Damaged(MemoryStore):
        def read(self, offset: int, max_bytes: int) -> bytes:
            data = bytearray(super().read(offset, max_bytes))
            data[12] ^= 1
            data[-3] ^= 1
            return bytes(data)

    store = Damaged()
    log = ReplicatedLog(store)
    images, _ = followed(log)
    append(log, a_topic(1))
    with pytest.raises(FatalError, match="damaged at or after offset 0"):
        await images.read_in_turns(log.end_offset, 1, ENV)
