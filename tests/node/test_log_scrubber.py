"""The scrubber of a running node: what it finds, its pace, and that it comes to the end of a long log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kbroker.log.partition_log import PartitionLog
from kbroker.log.scrubbing import Progress, read_progress
from kbroker.node.logs.log_scrubber import LogScrubber
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record, build_batch
from tests.node.node_harness import Node, produce_request, running_node

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
    node: Node, rate: int = FAST, *, keep_seconds: float = 60.0, processor_seconds: Callable[[], float] = lambda: 0.0
) -> LogScrubber:
    broker = node.broker
    return LogScrubber(
        broker.env,
        broker.log_manager,
        broker.replica_manager,
        rate,
        keep_seconds=keep_seconds,
        processor_seconds=processor_seconds,
    )


@asynccontextmanager
async def unscrubbed(path: Path) -> AsyncIterator[Node]:
    async with running_node(path, log_scrub_bytes_per_second="0") as node:
        yield node


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


async def test_a_round_reads_all_segments_once_a_week(tmp_path: Path) -> None:
    async with unscrubbed(tmp_path) as node:
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


async def test_damage_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with unscrubbed(tmp_path) as node:
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


async def test_the_batches_of_another_segment_are_damage(tmp_path: Path) -> None:
    """Give a segment the bytes of another one, as a disk does that has mixed up two blocks."""

    async with unscrubbed(tmp_path) as node:
        log = await fill(node)
        first, other = log.segments[0], log.segments[2]
        Path(first.path).write_bytes(Path(other.path).read_bytes()[: first.size])
        progress = await until(scrubber_of(node), lambda progress: progress.ended_ms > 0)
        (damage,) = log.damage
        assert progress.found == 1
        assert (damage.position, damage.start_offset, damage.end_offset) == (0, 0, log.segments[1].base_offset)


async def test_what_is_deleted_or_cut_meanwhile_is_no_damage(tmp_path: Path) -> None:
    async with unscrubbed(tmp_path) as node:
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


async def test_a_round_goes_on_where_the_last_life_of_the_node_left_it(tmp_path: Path) -> None:
    async with unscrubbed(tmp_path) as node:
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


async def test_a_busy_node_is_scrubbed_at_a_tenth_of_the_rate(tmp_path: Path) -> None:
    async with unscrubbed(tmp_path) as node:
        log = await fill(node)
        rate = 16 << 20
        scrubber = scrubber_of(node, rate, processor_seconds=node.broker.env.now)
        began = trio.current_time()
        await until(scrubber, lambda progress: progress.ended_ms > 0)
        # A small segment counts as 64 KiB; the first may be read before the node is known to be busy.
        assert trio.current_time() - began >= (len(log.segments) - 1) * 65536 / rate * 10
