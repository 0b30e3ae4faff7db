"""The view of a Fetch against a model that looks at every partition of the reader after every event."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey, ViewedPartition
from kbroker.cores.replication.purgatory import Purgatory
from kbroker.errors import ErrorCode
from kbroker.types import ZERO_UUID
from kbroker.wire.messages.fetch import FetchPartition, PartitionData
from tests.with_each import examples

COUNT = 4
ALL_BYTES = 2**63 - 1


def named(index: int, offset: int = 0) -> ViewedPartition:
    asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
    return ViewedPartition(PartitionKey("t", ZERO_UUID, index), asked)


@dataclass
class Partition:
    """A log in which each offset is a byte, led here."""

    index: int
    end: int = 0
    high_watermark: int = 0
    stable: int = 0
    start: int = 0

    def bound(self, view: FetchView) -> int:
        """The offset before which a reader may read: the log end, the last stable offset or the high watermark."""
        if view.by_follower:
            return self.end
        return self.stable if view.committed_only else self.high_watermark


@dataclass
class World:
    """Partitions whose events reach a purgatory as a node's do, and one reader in a session or out of it."""

    by_follower: bool
    tracks: bool
    committed_only: bool
    purgatory: Purgatory = field(default_factory=Purgatory)
    partitions: list[Partition] = field(default_factory=lambda: [Partition(index) for index in range(COUNT)])

    def __post_init__(self) -> None:
        asked = {partition.key: partition for partition in map(named, range(COUNT))}
        self.view = FetchView(asked, self.by_follower)
        if self.tracks:
            self.view.track_changes()

    # --- events

    def append(self, index: int, size: int) -> None:
        self.partitions[index].end += size
        self.purgatory.appended(("t", index), size)

    def commit(self, index: int, opens_transaction: bool) -> None:
        partition = self.partitions[index]
        added = partition.end - partition.high_watermark
        if not added:
            return
        partition.high_watermark = partition.end
        is_stable = not opens_transaction and partition.stable == partition.high_watermark - added
        if is_stable:
            partition.stable = partition.end
        self.purgatory.high_watermark_moved(("t", index), partition.end, added, is_stable)

    def end_transaction(self, index: int) -> None:
        """A marker is written, after which a reader may have whatever it waits for."""
        partition = self.partitions[index]
        partition.end += 1
        self.purgatory.appended(("t", index), 1)
        partition.high_watermark = partition.stable = partition.end
        self.purgatory.high_watermark_moved(("t", index), partition.end, ALL_BYTES)

    def delete(self, index: int) -> None:
        partition = self.partitions[index]
        partition.start = partition.high_watermark
        self.purgatory.mark(("t", index))

    # --- the reader, as node.fetch_reader does it

    def news(self) -> set[int]:
        """The model: partitions with something to tell, found by looking at each."""
        return {
            each.key.partition
            for each in self.view.partitions.values()
            for partition in [self.partitions[each.key.partition]]
            if partition.bound(self.view) > each.fetch_offset
            or partition.high_watermark != each.high_watermark
            or partition.start != each.log_start_offset
        }

    def readable(self) -> int:
        """The model: bytes that the reader may have, found by looking at each partition."""
        return sum(
            max(0, self.partitions[each.key.partition].bound(self.view) - each.fetch_offset)
            for each in self.view.partitions.values()
        )

    def read(self) -> list[ViewedPartition]:
        view = self.view
        found = view.begin_read()
        for each in found:
            partition = self.partitions[each.key.partition]
            view.readable_bytes += max(0, partition.bound(view) - each.fetch_offset)
            if each.key not in view.watched:
                self.purgatory.watch_fetch(view, each.key, ("t", partition.index))
            if partition.index not in self.news():
                view.has_no_news(each.key)
        return found

    def answer(self, found: list[ViewedPartition]) -> None:
        """Tell the reader what there is; it asks for the next offset then."""
        view = self.view
        for each in found:
            partition = self.partitions[each.key.partition]
            has_records = partition.bound(view) > each.fetch_offset
            data = PartitionData(
                partition_index=partition.index,
                high_watermark=partition.high_watermark,
                log_start_offset=partition.start,
                preferred_read_replica=-1,
            )
            each.update_response(data, has_records)
            if has_records:
                view.sent_records(each.key)
                view.update({each.key: named(partition.index, partition.bound(view))}, ())
        view.in_request = False
        if not view.stays_watched:
            self.purgatory.unwatch_fetch(view)


indexes = st.integers(0, COUNT - 1)
events = st.one_of(
    st.tuples(st.just("append"), indexes, st.integers(1, 20)),
    st.tuples(st.just("commit"), indexes, st.booleans()),
    st.tuples(st.just("end_transaction"), indexes),
    st.tuples(st.just("delete"), indexes),
)
requests = st.tuples(st.integers(1, 30), st.lists(events, max_size=6), st.lists(events, max_size=4))


@given(
    st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
    st.booleans(),
    st.lists(requests, max_size=8),
)
@settings(max_examples=examples(100), deadline=None)
def test_the_view_knows_what_a_look_at_every_partition_finds(
    kind: tuple[bool, bool],
    committed_only: bool,
    course: list[tuple[int, list[tuple[object, ...]], list[tuple[object, ...]]]],
) -> None:
    """Nothing to tell is missed, bytes are counted once, and the wait ends when there are enough."""
    by_follower, tracks = kind
    world = World(by_follower, tracks, committed_only and not by_follower)
    view = world.view
    for min_bytes, while_waiting, between in course:
        view.begin_request(min_bytes, committed_only=world.committed_only)
        found = world.read()
        assert view.readable_bytes == world.readable()
        woken: list[None] = []
        view.wake = lambda woken=woken: woken.append(None)
        before = world.readable()
        for name, *args in while_waiting:
            getattr(world, str(name))(*args)
            has_marker = view.arrived_bytes >= ALL_BYTES
            assert view.readable_bytes + view.arrived_bytes == world.readable() or has_marker
            assert world.news() <= {each.key.partition for each in view_reads(view)}
        assert view.done == (view.arrived_bytes > 0 and before + view.arrived_bytes >= min_bytes)
        assert len(woken) == view.done
        view.wake = None
        if while_waiting:
            found = world.read()
        assert world.news() <= {each.key.partition for each in found}
        world.answer(found)
        for name, *args in between:
            getattr(world, str(name))(*args)
        if not tracks:
            assert not world.purgatory.views


def view_reads(view: FetchView) -> list[ViewedPartition]:
    """The partitions that the next read would look at."""
    return [view.partitions[key] for key in (view.partitions if view.dirty is None else view.dirty)]


@given(st.lists(st.tuples(indexes, st.sampled_from(["mark", "partition_changed", "high_watermark_moved"]))))
def test_a_consumer_that_asks_no_more_is_told_of_each_partition_once(course: list[tuple[int, str]]) -> None:
    world = World(by_follower=False, tracks=True, committed_only=False)
    world.view.begin_request(1)
    world.answer(world.read())
    assert world.purgatory.fetch_watch_count == COUNT
    for index, event in course:
        if event == "mark":
            world.purgatory.mark(("t", index))
        elif event == "partition_changed":
            world.purgatory.partition_changed(("t", index), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            world.purgatory.high_watermark_moved(("t", index), 1, 1)
    moved = {index for index, event in course if event == "high_watermark_moved"}
    assert world.purgatory.fetch_watch_count == COUNT - len(moved)
    assert {each.key.partition for each in view_reads(world.view)} >= moved
