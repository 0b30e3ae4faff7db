"""No-op records of an idle controller (KIP-835), and snapshots of the metadata by time (KIP-876)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.fake_disk import FakeDisk
from kbroker.node.broker import Broker
from kbroker.node.controller.idle_records import IdleRecords
from kbroker.node.controller.metadata_snapshots import MetadataSnapshots
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.raft.batches import decode_batches
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import SnapshotStore
from kbroker.sim.quorum.disk import MemoryStore, SimSnapshots
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.metadata import NoOpRecord
from tests.node.quorum_harness import Quorum, quorum, three_nodes


def on_a_clock_that_jumps(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


class _Log:
    """A controller's log, of which the records count."""

    def __init__(self) -> None:
        self.is_active = True
        self.written: list[float] = []
        self.refuses = False
        self._on_active: list[Callable[[], None]] = []

    def on_active(self, callback: Callable[[], None]) -> None:
        self._on_active.append(callback)

    def begin(self) -> None:
        self.is_active = True
        for callback in self._on_active:
            callback()

    async def submit(self, operation: Callable[[Any], Any]) -> None:
        if self.refuses:
            self.is_active = False
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        [record] = operation(None).records
        assert isinstance(record, NoOpRecord)
        self.written.append(trio.current_time())


class _Images:
    """Publishes nothing but that something has changed."""

    def __init__(self) -> None:
        self.changed = trio.Event()

    async def wait_for(self, condition: Callable[[Any], bool]) -> None:
        while not condition(None):
            await self.changed.wait()


ENV: Any = SimpleNamespace(now=trio.current_time, wall_clock_ms=lambda: 1_700_000_000_000)


def test_a_record_is_written_every_interval() -> None:
    async def main() -> None:
        log, images = _Log(), _Images()
        followed = full = False
        idle: Any = IdleRecords(log, images, ENV, 500, lambda: followed, lambda: full)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(idle.run)
            await trio.sleep(100)
            assert log.written == [], "nobody follows it"
            followed, begin = True, trio.current_time()
            images.changed.set()
            await trio.sleep(1.7)
            assert [round(at - begin, 2) for at in log.written] == [0.5, 1.0, 1.5]
            log.is_active = False
            await trio.sleep(5)
            assert len(log.written) == 3
            log.begin()
            await trio.sleep(0.6)
            assert len(log.written) == 4
            full = True
            await trio.sleep(5)
            assert len(log.written) == 4, "they are not to take the last room of a full disk"
            full = False
            await trio.sleep(0.6)
            assert len(log.written) == 5
            log.refuses = True  # it leads no more, which it is told when it writes
            await trio.sleep(5)
            log.refuses = False
            log.begin()
            await trio.sleep(0.6)
            assert len(log.written) == 6
            nursery.cancel_scope.cancel()

    on_a_clock_that_jumps(main)


def written_to(store: Any) -> tuple[MetadataSnapshots, Callable[[int], None]]:
    """Writes the snapshots of a log; it grows by so many records with each call of the function."""
    log = ReplicatedLog(MemoryStore(), store)
    images: Any = SimpleNamespace(image=MetadataImage(), last_timestamp=0)

    async def run_blocking(function: Callable[[], None]) -> None:
        function()

    env: Any = SimpleNamespace(now=trio.current_time, wall_clock_ms=ENV.wall_clock_ms, run_blocking=run_blocking)
    snapshots = MetadataSnapshots(log, store, images, env, 1000, 60_000)

    def grow(size: int) -> None:
        log.append_records([NoOpRecord()] * size, 1, timestamp_ms=0, metadata_version=30)
        images.image = MetadataImage(offset=log.end_offset - 1, epoch=1)
        snapshots.on_high_watermark()

    return snapshots, grow


def test_a_snapshot_is_due_after_the_interval_if_there_is_news() -> None:
    async def main() -> None:
        store: Any = SimSnapshots()
        store.path = str
        snapshots, grow = written_to(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(snapshots.run)
            await trio.sleep(200)
            assert store.ids() == [], "nothing is known yet"
            grow(1)
            await trio.sleep(61)
            assert store.ids() == [OffsetAndEpoch(1, 1)]
            await trio.sleep(1000)
            assert store.ids() == [OffsetAndEpoch(1, 1)], "there is nothing new"
            grow(1)
            await trio.sleep(61)
            assert store.ids()[-1] == OffsetAndEpoch(2, 1)
            grow(200)  # by size, at once, and then the time begins anew
            await trio.sleep(50)
            assert store.ids()[-1] == OffsetAndEpoch(202, 1)
            grow(1)
            await trio.sleep(5)
            assert store.ids()[-1] == OffsetAndEpoch(202, 1)
            await trio.sleep(10)
            assert store.ids() == [OffsetAndEpoch(202, 1), OffsetAndEpoch(203, 1)], "the one before stays"
            nursery.cancel_scope.cancel()

    on_a_clock_that_jumps(main)


def test_a_full_disk_costs_a_snapshot_and_nothing_else() -> None:
    async def main() -> None:
        disk = FakeDisk()
        disk.make_dirs("/metadata")
        snapshots, grow = written_to(SnapshotStore(disk, "/metadata"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(snapshots.run)
            for _ in range(2):
                grow(1)
                await trio.sleep(61)
            assert [*snapshots.files] == [OffsetAndEpoch(1, 1), OffsetAndEpoch(2, 1)]
            disk.capacity = disk.used() + 50
            grow(1)
            await trio.sleep(61)
            assert [*snapshots.files] == [OffsetAndEpoch(2, 1)]
            assert len(disk.list_dir("/metadata")) == 1, "nothing stays of the one that had no room"
            await trio.sleep(61)
            assert [*snapshots.files] == [OffsetAndEpoch(2, 1), OffsetAndEpoch(3, 1)]
            nursery.cancel_scope.cancel()

    on_a_clock_that_jumps(main)


# Of whole nodes


def ends(cluster: Quorum) -> dict[int, int]:
    """The offset of each node's metadata."""
    return {node_id: node.metadata.image.offset for node_id, node in cluster.nodes.items()}


def records_from(node: Broker, offset: int) -> list[object]:
    """The records of a node's metadata log from an offset on."""
    data = node.metadata.quorum.log.read_bytes(offset, 1 << 20)
    return [record for batch in decode_batches(data) if not batch.is_control for record in batch.records]


async def test_a_controller_begins_to_write_them_when_somebody_follows(tmp_path: Path) -> None:
    properties = {"metadata_max_idle_interval_ms": "20"}
    async with quorum(tmp_path, 2, initial=1, roles_of={2: "broker"}, properties=properties) as cluster:
        await cluster.start(1)
        await cluster.await_leader()
        await cluster.node(1).create_topic("alone")
        assert not any(isinstance(record, NoOpRecord) for record in records_from(cluster.nodes[1], 0))
        await cluster.start(2)
        end = max(ends(cluster).values())
        for node_id in (1, 2):
            await cluster.until(lambda node_id=node_id: ends(cluster)[node_id] > end + 20)  # type: ignore[misc]


async def test_snapshots_by_time_take_the_place_of_the_log(tmp_path: Path) -> None:
    properties = {"metadata_log_max_snapshot_interval_ms": "300", "metadata_max_idle_interval_ms": "50"}
    async with three_nodes(tmp_path, **properties) as cluster:
        for node in cluster.nodes.values():
            log = node.metadata.quorum.log
            await cluster.until(lambda log=log: log.start_offset > 0)  # type: ignore[misc]
            first = log.latest_snapshot_id
            await cluster.until(lambda log=log, first=first: log.latest_snapshot_id != first)  # type: ignore[misc]
        await cluster.node(1).create_topic("a")
        await cluster.topics_everywhere(["a"])
