"""Compaction on a running node: in a process of its own, beside requests, and what ends it."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kbroker.log.checkpoint_files import CLEANER_OFFSETS, read_offsets
from kbroker.log.compaction.compactor import compact
from kbroker.log.compaction.job import CompactionFailed, CompactionJob, CompactionResult, NoWorker, SegmentToClean
from kbroker.log.segments.cleaned_segment import CleanedSegment
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.node.logs.compaction_pool import CompactionPool
from kbroker.node.logs.compaction_worker import Pace, decode_answer, decode_job, encode_answer, encode_job
from kbroker.node.logs.log_cleaner import CleanerSettings, Compactor, LogCleaner
from kbroker.node.logs.log_flusher import LogFlusher
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.node.node_harness import Node, fetch_request, produce_request, running_node

TOPIC = TopicPartition("compacted", 0)
SETTINGS = CleanerSettings(1, 1 << 20, 1 << 16, 1e300, 10)
JOB = CompactionJob("/d", [SegmentToClean(0, 5, 100, 1, 1)], [0], 0, 5, 1, 2, 3, 4, 5, {7: (3, 1)})
RESULT = CompactionResult(5, [CleanedSegment(0, 50, [0])], 100, 50)


async def fill(node: Node, *, keys: int = 10, batches: int = 40) -> dict[bytes, tuple[int, bytes]]:
    """Write a compacted topic of several segments; key -> offset and value of its last record."""
    await node.create_topic("compacted", cleanup_policy="compact", internal_segment_bytes="2000")
    client = await node.connect()
    last: dict[bytes, tuple[int, bytes]] = {}
    offset = 0
    for number in range(batches):
        pairs = [(b"key-%d" % ((number + i) % keys), b"value-%d-%d" % (number, i)) for i in range(3)]
        data = build_batch([Record(0, 1000 + number, key, value) for key, value in pairs])
        answer = await client.ask(produce_request("compacted", data), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        for key, value in pairs:
            last[key] = offset, value
            offset += 1
    await client.stream.aclose()
    await LogFlusher(
        node.broker.env, node.broker.config, node.broker.log_manager, node.broker.replica_manager
    ).flush_due()
    return last


async def consume(node: Node) -> dict[int, tuple[bytes, bytes]]:
    """All records by offset."""
    client = await node.connect()
    found: dict[int, tuple[bytes, bytes]] = {}
    offset = 0
    while True:
        answer = await client.ask(fetch_request("compacted", [(0, offset)], partition_max_bytes=700), 12)
        data = bytes(answer.responses[0].partitions[0].records or b"")
        if not data:
            await client.stream.aclose()
            return found
        for position, header in walk_headers(data):
            for record in iter_records(data, position):
                found[record.offset] = bytes(record.key or b""), bytes(record.value or b"")
            offset = header.next_offset


async def cleaned(node: Node) -> None:
    """Until all of the compacted topic is clean that can be."""
    log = node.broker.log_manager.log_of(TOPIC)
    assert log is not None
    while node.broker.log_manager.cleaner_offsets.of(TOPIC) != log.active_segment.base_offset:
        await trio.sleep(0.05)


def cleaner_of(node: Node, compactor: Compactor | None = None) -> LogCleaner:
    broker = node.broker
    return LogCleaner(broker.env, broker.log_manager, broker.replica_manager, lambda: SETTINGS, compactor)


class During:
    """Rounds in this process, with something that happens before they end."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    async def compact(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        from kbroker.log.disk import OsDisk

        result = compact(job, OsDisk())
        await trio.lowlevel.checkpoint()
        self._action()
        return result

    async def close_idle(self) -> None:
        pass


@asynccontextmanager
async def uncleaned(path: Path, **properties: str) -> AsyncIterator[Node]:
    async with running_node(path, log_cleaner_enable="false", **properties) as node:
        yield node


async def test_a_round_in_another_process(tmp_path: Path) -> None:
    async with uncleaned(tmp_path) as node:
        last = await fill(node)
        log = node.broker.log_manager.log_of(TOPIC)
        assert log is not None
        before = log.size
        active = log.active_segment.base_offset
        cleaner = cleaner_of(node)
        assert await cleaner.clean_filthiest()
        assert not await cleaner.clean_filthiest(), "nothing is dirty any more"
        assert log.size < before / 2
        found = await consume(node)
        for key, (offset, value) in last.items():
            assert found[offset] == (key, value)
        old = [offset for offset in found if offset < active]
        assert len({found[offset][0] for offset in old}) == len(old), "each key once below the active segment"
        offsets = read_offsets(node.broker.env.disk, str(tmp_path / "data" / CLEANER_OFFSETS))
        assert offsets == {TOPIC: active}
        await cleaner._compactor.close_idle()
    async with running_node(tmp_path) as node:
        assert node.broker.log_manager.cleaner_offsets.of(TOPIC)
        assert len(await consume(node)) >= 10


async def test_it_runs_by_itself(tmp_path: Path) -> None:
    async with running_node(tmp_path, log_cleaner_backoff_ms="10") as node:
        await fill(node)
        await cleaned(node)


async def test_a_node_goes_on_with_its_file_where_what_was_set_at_run_time_does_not_go_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file has got another value since; or it always had, and the active controller judged by its own."""
    size = "log.cleaner.dedupe.buffer.size"
    resource = IncrementalAlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[IncrementalAlterableConfig(name=size, config_operation=0, value=str(2 << 20))],
    )
    async with running_node(tmp_path, log_cleaner_threads="1") as node:
        client = await node.connect()
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0
    async with running_node(tmp_path, log_cleaner_threads="4", log_cleaner_backoff_ms="10") as node:
        await fill(node)
        await cleaned(node)
    (told,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert told.getMessage().endswith(f"{size}: {size} must be at least 1MB per cleaner thread.")


async def test_committed_offsets_are_compacted(tmp_path: Path) -> None:
    """``__consumer_offsets`` is a compacted topic like any other; groups are loaded from what is left of it."""
    properties = {"offsets_topic_num_partitions": "1"}
    rounds = 60

    async with uncleaned(tmp_path, **properties) as node:
        await node.create_topic("t", 3)
        client = await node.connect()
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        for number in range(rounds):
            for index in range(3):
                while True:
                    answer = await client.ask(
                        OffsetCommitRequest(
                            group_id="g",
                            topics=[
                                OffsetCommitRequestTopic(
                                    name="t",
                                    partitions=[
                                        OffsetCommitRequestPartition(
                                            partition_index=index,
                                            committed_offset=100 * index + number,
                                            committed_metadata="m" * 20,
                                        )
                                    ],
                                )
                            ],
                        ),
                        8,
                    )
                    if answer.topics[0].partitions[0].error_code == 0:
                        break
                    await trio.sleep(0.05)  # until the coordinator is there
        broker = node.broker
        log = broker.log_manager.log_of(TopicPartition("__consumer_offsets", 0))
        assert log is not None
        assert log.config.compact
        log.roll(broker.env.wall_clock_ms())
        await LogFlusher(broker.env, broker.config, broker.log_manager, broker.replica_manager).flush_due()
        before = log.size
        cleaner = cleaner_of(node)
        assert await cleaner.clean_filthiest()
        await cleaner._compactor.close_idle()
        assert log.size < before / 2

    async with uncleaned(tmp_path, **properties) as node:
        client = await node.connect()
        while True:
            answer = await client.ask(
                OffsetFetchRequest(
                    group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1, 2])]
                ),
                6,
            )
            if answer.error_code == 0:
                break
            await trio.sleep(0.05)
        offsets = [partition.committed_offset for partition in answer.topics[0].partitions]
        assert offsets == [100 * index + rounds - 1 for index in range(3)]


async def test_a_topic_deleted_meanwhile(tmp_path: Path) -> None:
    async with uncleaned(tmp_path) as node:
        await fill(node)
        manager = node.broker.replica_manager
        cleaner = cleaner_of(node, During(lambda: manager.metadata._drop(manager.partitions[TOPIC])))
        assert await cleaner.clean_filthiest()
        assert manager.log_manager.log_of(TOPIC) is None
        assert not cleaner.uncleanable
        assert all(log_dir.offline is None for log_dir in manager.log_manager.log_dirs)


async def test_a_log_truncated_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    async with uncleaned(tmp_path) as node:
        await fill(node)
        log = node.broker.log_manager.log_of(TOPIC)
        assert log is not None
        cleaner = cleaner_of(node, During(lambda: bool(log.truncate_to(50))))
        assert await cleaner.clean_filthiest()
        assert len(await consume(node)) == log.log_end_offset
        assert not [name for name in log.disk.list_dir(log.directory) if "cleaned" in name or "swap" in name]
        assert not log.segments_held


async def test_retention_waits_for_a_round(tmp_path: Path) -> None:
    async with uncleaned(tmp_path) as node:
        await fill(node)
        log = node.broker.log_manager.log_of(TOPIC)
        assert log is not None
        counts: list[int] = []
        log.log_start_offset = 60
        cleaner = cleaner_of(node, During(lambda: counts.append(log.delete_old_segments(1 << 50))))
        assert await cleaner.clean_filthiest()
        assert counts == [0]


@pytest.mark.parametrize(
    ("error", "offline", "uncleanable"),
    [
        (CorruptSegment("/x", 1, "bad"), False, True),
        (OSError(errno.EIO, "io"), True, False),
        (OSError(errno.ENOSPC, "full"), False, False),
        (CompactionFailed("ended"), False, True),
    ],
)
async def test_failures(tmp_path: Path, error: Exception, offline: bool, uncleanable: bool) -> None:
    def fail() -> None:
        raise error

    # Two dirs, and one for the metadata log: with none left, or without that one, the node would end.
    dirs = {"log_dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}", "metadata_log_dir": str(tmp_path / "metadata")}
    async with uncleaned(tmp_path, **dirs) as node:
        await fill(node)
        cleaner = cleaner_of(node, During(fail))
        assert await cleaner.clean_filthiest()
        place = node.broker.log_manager.log_dir_of(TOPIC)
        assert place is not None
        assert (place.offline is not None) == offline
        assert (TOPIC in cleaner.uncleanable) == uncleanable
        assert not await cleaner.clean_filthiest()


async def test_a_log_for_which_there_was_no_room_is_compacted_later(tmp_path: Path) -> None:
    async with uncleaned(tmp_path) as node:
        await fill(node)
        broker, rounds = node.broker, iter([OSError(errno.ENOSPC, "full")])

        def full_once() -> None:
            for error in rounds:
                raise error

        cleaner = LogCleaner(
            broker.env,
            broker.log_manager,
            broker.replica_manager,
            lambda: SETTINGS,
            During(full_once),
            no_room_seconds=0.0,
        )
        assert not broker.log_manager.cleaner_offsets.of(TOPIC)
        assert await cleaner.clean_filthiest()
        assert not broker.log_manager.cleaner_offsets.of(TOPIC)
        assert await cleaner.clean_filthiest()
        assert broker.log_manager.cleaner_offsets.of(TOPIC)


async def test_a_process_that_dies_fails_its_job_alone(tmp_path: Path) -> None:
    pool = CompactionPool()
    with pytest.raises(OSError) as caught:
        await pool.compact(JOB, 1e300)
    assert caught.value.errno == errno.ENOENT
    empty = CompactionJob(str(tmp_path), [], [], 0, 0, 1, 2, 3, 4, 5)
    assert (await pool.compact(empty, 1e300)).segments == []
    pool._idle[0]._process.kill()
    await pool._idle[0]._process.wait()
    with pytest.raises(CompactionFailed):
        await pool.compact(empty, 1e300)
    assert (await pool.compact(empty, 1e300)).end_offset == 0
    await pool.close_idle()


async def test_an_installation_that_is_being_changed_is_no_fault_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kbroker.node.logs.compaction_worker", None)
    with pytest.raises(NoWorker):
        await CompactionPool().compact(JOB, 1e300)


def test_a_process_whose_broker_ends_says_nothing(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "kbroker.node.logs.compaction_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdout.close()
    _, told = worker.communicate(encode_job(CompactionJob(str(tmp_path), [], [], 0, 0, 1, 2, 3, 4, 5), 1e300))
    assert worker.returncode == 0 and told == b""


def test_the_line_protocol() -> None:
    assert decode_job(encode_job(JOB, 2.5)) == (JOB, 2.5)
    assert decode_answer(encode_answer(RESULT)) == RESULT
    with pytest.raises(CorruptSegment, match="/p: at byte 3: why"):
        decode_answer(encode_answer(CorruptSegment("/p", 3, "why")))
    with pytest.raises(PermissionError) as caught:
        decode_answer(encode_answer(PermissionError(errno.EACCES, "no", "/p")))
    assert caught.value.filename == "/p"
    with pytest.raises(CompactionFailed, match="ZeroDivisionError"):
        decode_answer(encode_answer(ZeroDivisionError("x")))


def test_pace_keeps_to_the_rate_and_leaves_with_the_parent() -> None:
    now = 100.0
    parent = 7
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    pace = Pace(1000.0, clock=lambda: now, sleep=sleep, parent=lambda: parent)
    for _ in range(5):
        pace(500)
    assert sum(slept) == pytest.approx(2.5)
    now += 100
    pace(1000)
    assert slept[-1] == pytest.approx(1.0), "time that passed unused is not saved up"
    parent = 1
    with pytest.raises(SystemExit):
        pace(1)


async def test_a_process_that_cannot_be_started_is_no_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are too many of them, say, or another Python has been installed meanwhile."""

    async with uncleaned(tmp_path) as node:
        await fill(node)
        cleaner = cleaner_of(node)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(tmp_path / "gone"))
            assert not await cleaner.clean_filthiest(), "it may go better after a while"
        place = node.broker.log_manager.log_dir_of(TOPIC)
        assert place is not None
        assert place.offline is None
        assert await cleaner.clean_filthiest()
        await cleaner._compactor.close_idle()
