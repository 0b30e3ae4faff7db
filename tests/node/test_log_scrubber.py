"""The scrubber of a running node: what it finds, its pace, and that it comes to the end of a long log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from kbroker.log.disk import OsDisk
from kbroker.log.partition_log import PartitionLog
from kbroker.log.scrubbing import Progress, read_progress
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.node.logs.log_scrubber import LogScrubber
from kbroker.raft_metadata.raft.snapshot import SnapshotStore
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.record_batch import Record, build_batch
from tests.node.node_harness import Node, produce_request, run, running_node
from tests.patience import SHORT

TOPIC = TopicPartition("topic", 0)
FAST = 1 << 40


async def fill(node: Node, batches: int = 40) -> PartitionLog:
    """Write a topic of several segments."""
    await node.create_topic("topic", internal_segment_bytes="1000")
    client = await node.connect()
    for number in range(batches):
        data = build_batch([Record(0, 1000, b"key", b"value-%d" % number)] * 3)
        answer = await client.ask(produce_request("topic", data), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
    await client.stream.aclose()
    log = node.broker.log_manager.log_of(TOPIC)
    assert log is not None and len(log.segments) > 3
    return log


def scrubber_of(
    node: Node,
    rate: int = FAST,
    metadata: MetadataPlane | None = None,
    *,
    keep_seconds: float = 60.0,
    processor_seconds: Callable[[], float] = lambda: 0.0,
) -> LogScrubber:
    broker = node.broker
    return LogScrubber(
        broker.env,
        broker.log_manager,
        broker.replica_manager,
        rate,
        metadata,
        keep_seconds=keep_seconds,
        processor_seconds=processor_seconds,
    )


def scenario(tmp_path: Path, test: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_node(tmp_path, log_scrub_bytes_per_second="0") as node:
            await test(node)

    run(main)


def log_dir(node: Node) -> str:
    return node.broker.log_manager.log_dirs[0].path


async def until(scrubber: LogScrubber, condition: Callable[[Progress], bool]) -> Progress:
    """Run a scrubber until its progress is what it should be, and end it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scrubber.run)
        while not (scrubber.progress and condition(next(iter(scrubber.progress.values())))):
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return next(iter(scrubber.progress.values()))


def test_a_round_reads_all_segments_once_a_week(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        log = await fill(node)
        scrubber = scrubber_of(node)
        progress = await until(scrubber, lambda progress: progress.ended_ms > 0)
        assert (progress.done, progress.total, progress.found, progress.next) == (log.size, log.size, 0, None)
        assert list(scrubber.bytes.values()) == [log.size]
        assert read_progress(node.broker.env.disk, log_dir(node)) == progress

        again = scrubber_of(node)
        await trio.sleep(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again.run)
            while not again.progress:
                await trio.sleep(0.01)
            assert again.progress == scrubber.progress, "a new round is not due yet"
            again.begin()
            while list(again.bytes.values()) != [log.size]:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    scenario(tmp_path, test)


def test_a_round_that_is_asked_for_while_the_last_is_written_down_begins(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        size = (await fill(node)).size
        scrubber = scrubber_of(node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrubber.run)
            while not (scrubber.progress and scrubber.progress[log_dir(node)].ended_ms):
                await trio.lowlevel.checkpoint()
            scrubber.begin()
            with trio.fail_after(SHORT):
                while scrubber.bytes[log_dir(node)] < 2 * size:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    scenario(tmp_path, test)


def test_damage_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        log = await fill(node)
        path = Path(log.segments[1].path)
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            progress = await until(scrubber_of(node), lambda progress: progress.ended_ms > 0)
        assert progress.found == 1
        (damage,) = log.damage
        assert (damage.segment, damage.position, damage.start_offset) == (path.name, 0, log.segments[1].base_offset)
        assert f"topic-0 is damaged: {path}: " in caplog.text

    scenario(tmp_path, test)


def test_the_batches_of_another_segment_are_damage(tmp_path: Path) -> None:
    """Give a segment the bytes of another one, as a disk does that has mixed up two blocks."""

    async def test(node: Node) -> None:
        log = await fill(node)
        first, other = log.segments[0], log.segments[2]
        Path(first.path).write_bytes(Path(other.path).read_bytes()[: first.size])
        progress = await until(scrubber_of(node), lambda progress: progress.ended_ms > 0)
        (damage,) = log.damage
        assert progress.found == 1
        assert (damage.position, damage.start_offset, damage.end_offset) == (0, 0, log.segments[1].base_offset)

    scenario(tmp_path, test)


def test_what_is_deleted_or_cut_meanwhile_is_no_damage(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        log = await fill(node)
        # About two segments in a second.
        scrubber = scrubber_of(node, 128 * 1024)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrubber.run)
            while not (scrubber.progress and scrubber.progress[log_dir(node)].next):
                await trio.sleep(0.01)
            log.truncate_to(log.segments[3].base_offset + 1)
            log.maybe_increment_log_start_offset(log.segments[2].base_offset)
            log.delete_old_segments(0)
            while not scrubber.progress[log_dir(node)].ended_ms:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert scrubber.progress[log_dir(node)].found == 0

    scenario(tmp_path, test)


def test_a_round_goes_on_where_the_last_life_of_the_node_left_it(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        log = await fill(node)
        first = scrubber_of(node, 1, keep_seconds=0)  # it does not come to a second segment
        await until(first, lambda progress: progress.done > 0)
        assert first.progress[log_dir(node)].next is None
        slow = scrubber_of(node, 256 * 1024, keep_seconds=0)
        await until(slow, lambda progress: progress.next is not None and progress.next[1] > 0)
        kept = read_progress(node.broker.env.disk, log_dir(node))
        assert kept.next is not None and 0 < kept.done < log.size
        second = scrubber_of(node)
        progress = await until(second, lambda progress: progress.ended_ms > 0)
        assert progress.done == log.size and progress.began_ms == kept.began_ms
        assert list(second.bytes.values()) == [log.size - kept.done]

    scenario(tmp_path, test)


def test_a_busy_node_is_scrubbed_at_a_tenth_of_the_rate(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        log = await fill(node)
        rate = 16 << 20
        scrubber = scrubber_of(node, rate, processor_seconds=node.broker.env.now)
        began = trio.current_time()
        await until(scrubber, lambda progress: progress.ended_ms > 0)
        # A small segment counts as 64 KiB; the first may be read before the node is known to be busy.
        assert trio.current_time() - began >= (len(log.segments) - 1) * 65536 / rate * 10

    scenario(tmp_path, test)


@pytest.mark.parametrize("number", [0, 3, -1], ids=["first", "middle", "last"])
def test_a_snapshot_takes_the_place_of_a_damaged_metadata_log(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def damage(node: Node) -> None:
        for topic in ("first", "second"):
            await node.create_topic(topic)
        records = node.broker.metadata.records
        assert records is not None
        path = Path(records.segments[0].path)
        content = bytearray(path.read_bytes())
        position, header = list(walk_headers(content))[number]
        content[position + 70] ^= 1
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            progress = await until(scrubber_of(node, metadata=node.broker.metadata), lambda each: each.ended_ms > 0)
        assert progress.found == 1
        while records.is_damaged:
            await trio.sleep(0.01)
        assert records.log_start_offset > header.last_offset
        assert "nothing of that is lost" in caplog.text
        (aside,) = path.parent.glob("*.set-aside")
        assert aside.read_bytes() == content[position : position + header.size]
        await node.create_topic("third")

    scenario(tmp_path, damage)

    async def again(node: Node) -> None:
        assert sorted(node.broker.metadata.image.topics.by_name) == ["first", "second", "third"]

    scenario(tmp_path, again)


@pytest.mark.parametrize("which", [0, -1], ids=["older", "newest"])
@pytest.mark.parametrize("size", [0, 50, None], ids=["emptied", "cut", "flipped"])
def test_a_damaged_snapshot_is_written_anew(tmp_path: Path, which: int, size: int | None) -> None:
    async def test(node: Node) -> None:
        metadata = node.broker.metadata
        for topic in ("first", "second"):
            await node.create_topic(topic)
            await metadata.snapshots.write()
        path = Path([*metadata.snapshots.files.values()][which])
        content = bytearray(path.read_bytes())
        content[90] ^= 1
        path.write_bytes(content[:size])
        scrubber = scrubber_of(node, metadata=metadata)
        assert (await until(scrubber, lambda progress: progress.ended_ms > 0)).found == 1
        aside = path.with_name(path.name + ".set-aside")
        newest = Path([*metadata.snapshots.files.values()][-1])
        while not (newest.exists() and aside.exists()):
            await trio.sleep(0.01)
        assert aside.read_bytes() == content[:size]
        store = SnapshotStore(OsDisk(), str(path.parent))
        assert [len(store.read(snapshot_id).records) > 0 for snapshot_id in store.ids() if snapshot_id.offset]

    scenario(tmp_path, test)

    async def again(node: Node) -> None:
        assert sorted(node.broker.metadata.image.topics.by_name) == ["first", "second"]

    scenario(tmp_path, again)
