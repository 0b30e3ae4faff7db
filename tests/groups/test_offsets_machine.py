"""Committed offsets under random commits, transactions, deletions, members, time, and compaction of their log.

Whatever happens, a coordinator that loads the log knows what the one knows that wrote it, also when the log has been
compacted up to any place that compaction may reach.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult
from kbroker.cores.groups.group_coordinator import GroupCoordinator
from kbroker.errors import ApiError
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.groups.consumer_harness import Consumer, ConsumerShard
from tests.groups.harness import GROUP, Member, settle
from tests.with_each import examples

GROUPS = (GROUP, "h")
PRODUCERS = (10, 11)
DAY_MS = 24 * 3_600_000

Entry = tuple[int, int, CoordinatorRecord | bool]
"""Offset, producer id (-1 for none), and a record or the marker of its transaction."""


class LoggedShard(ConsumerShard):
    """A shard whose log has offsets, producers and markers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.entries: list[Entry] = []
        self.cleaned_to = 0

    @property
    def end_offset(self) -> int:
        return self.entries[-1][0] + 1 if self.entries else 0

    def run(self, result: CoordinatorResult[Any], producer_id: int = -1) -> Any:
        start = self.end_offset
        for offset, record in enumerate(result.records, start):
            self.entries.append((offset, producer_id, record))
            if result.replay:
                self.core.replay(record, self.now_ms, offset=offset, producer_id=producer_id)
        self._stored(result, None)
        return result.response

    def end(self, producer_id: int, commit: bool) -> None:
        self.entries.append((self.end_offset, producer_id, commit))
        self.core.replay_end_transaction(producer_id, commit)

    def compact(self, *, drops_tombstones: bool) -> None:
        """Keep the last record of each key, below the first open transaction and short of the log's last record."""
        aborted, first_open = self._transactions()
        bound = min([first_open, self.end_offset - 1])
        below = [entry for entry in self.entries if entry[0] < bound]
        last: dict[bytes, int] = {}
        for offset, _, what in below:
            if not isinstance(what, bool) and offset not in aborted:
                last[what.key] = offset
        kept: list[Entry] = []
        for entry in below:
            offset, _, what = entry
            if isinstance(what, bool):
                kept.append(entry)
            elif last.get(what.key) == offset and offset not in aborted:
                if what.value is not None or not (drops_tombstones and offset < self.cleaned_to):
                    kept.append(entry)
        self.entries = kept + self.entries[len(below) :]
        self.cleaned_to = max(self.cleaned_to, bound)

    def _transactions(self) -> tuple[set[int], int]:
        """The offsets of records of aborted transactions, and the first one of an open transaction."""
        aborted: set[int] = set()
        open_ones: dict[int, list[int]] = {}
        for offset, producer_id, what in self.entries:
            if isinstance(what, bool):
                ended = open_ones.pop(producer_id, [])
                if not what:
                    aborted.update(ended)
            elif producer_id >= 0:
                open_ones.setdefault(producer_id, []).append(offset)
        return aborted, min((each[0] for each in open_ones.values()), default=self.end_offset)

    def loaded(self) -> GroupCoordinator:
        """A core that has replayed the log."""
        fresh = ConsumerShard(topics={}, seed=self.seed + 1)
        fresh.core.on_topics(self.topics, (), False)
        for offset, producer_id, what in self.entries:
            if isinstance(what, bool):
                fresh.core.replay_end_transaction(producer_id, what)
            else:
                fresh.core.replay(what, self.now_ms, offset=offset, producer_id=producer_id)
        return fresh.core


def known(core: GroupCoordinator) -> dict[str, Any]:
    """Returns all that clients can hear of groups that have anything stored."""
    found: dict[str, Any] = {}
    for group_id in GROUPS:
        if group_id not in core.groups:
            continue
        group = core.groups.find(group_id)
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in "tu"]
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        offsets = {
            (topic.name, each.partition_index, is_stable): (each.committed_offset, each.metadata, each.error_code)
            for is_stable in (False, True)
            for topic in core.fetch_offsets(asked, {}, is_stable).topics
            for each in topic.partitions
        }
        if group.members or any(offset >= 0 or error for offset, _, error in offsets.values()):
            found[group_id] = type(group).__name__, sorted(group.members), offsets
    return found


def topics_with(kind: Any, of_partition: Any, name: str, topic_id: Uuid, partitions: list[Any]) -> list[Any]:
    return [kind(name=name, topic_id=topic_id, partitions=[of_partition(**each) for each in partitions])]


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = LoggedShard(topics={"t": 3, "u": 2}, group_initial_rebalance_delay_ms=0)
        self.count = 0
        self.consumer: Consumer | None = None
        self.classic: Member | None = None

    def topic_id(self, name: str) -> Uuid:
        topic = self.shard.topics.by_name(name)
        return ZERO_UUID if topic is None else topic.id

    def member_of(self, group_id: str) -> dict[str, Any]:
        if group_id == GROUP and self.consumer is not None:
            return {"member_id": self.consumer.member_id, "generation_id_or_member_epoch": self.consumer.epoch}
        if group_id == GROUP and self.classic is not None:
            return {"member_id": self.classic.member_id, "generation_id_or_member_epoch": self.classic.generation_id}
        return {}

    @rule(
        group_id=st.sampled_from(GROUPS),
        name=st.sampled_from("tu"),
        partitions=st.sets(st.integers(0, 1), min_size=1),
        producer_id=st.sampled_from((-1, *PRODUCERS)),
        metadata=st.sampled_from(["", "", "where"]),
        retention_ms=st.sampled_from([-1, -1, DAY_MS]),
    )
    def commit(
        self, group_id: str, name: str, partitions: set[int], producer_id: int, metadata: str, retention_ms: int
    ) -> None:
        topic_id = self.topic_id(name)
        if topic_id == ZERO_UUID:
            return
        self.count += 1
        offsets = [
            {"partition_index": each, "committed_offset": self.count, "committed_metadata": metadata}
            for each in sorted(partitions)
        ]
        shard, member = self.shard, self.member_of(group_id)
        try:
            if producer_id < 0:
                topics = topics_with(OffsetCommitRequestTopic, OffsetCommitRequestPartition, name, topic_id, offsets)
                plain = OffsetCommitRequest(group_id=group_id, topics=topics, retention_time_ms=retention_ms, **member)
                shard.run(shard.core.commit_offsets(plain, 9, shard.now_ms))
            else:
                topics = topics_with(
                    TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition, name, topic_id, offsets
                )
                pending = TxnOffsetCommitRequest(group_id=group_id, topics=topics, **member)
                shard.run(shard.core.commit_offsets_in_transaction(pending, 5, shard.now_ms), producer_id)
        except ApiError:
            pass

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        self.shard.end(producer_id, commit)

    @rule(group_id=st.sampled_from(GROUPS), name=st.sampled_from("tu"), partition=st.integers(0, 1))
    def delete_offset(self, group_id: str, name: str, partition: int) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions)]
        try:
            self.shard.run(self.shard.core.delete_offsets(OffsetDeleteRequest(group_id=group_id, topics=topics)))
        except ApiError:
            pass

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        try:
            self.shard.run(self.shard.core.admin.delete_group(group_id))
        except ApiError:
            pass

    @rule(name=st.sampled_from("tu"), hears_late=st.booleans())
    def topic_changes(self, name: str, hears_late: bool) -> None:
        gone = self.topic_id(name)
        if gone == ZERO_UUID:
            self.shard.set_topics(**{name: 3})
            return
        self.shard.set_topics(**{name: 0})
        if hears_late:
            self.shard.set_topics(**{name: 3})
        self.shard.run(self.shard.core.on_topics_deleted([(name, gone)]))

    @rule(is_classic=st.booleans(), topics=st.sampled_from([["t"], ["t", "u"]]))
    def join(self, is_classic: bool, topics: list[str]) -> None:
        if self.consumer is not None or self.classic is not None:
            return
        if is_classic:
            member = Member(self.shard, topics=tuple(topics), session_timeout_ms=45_000)
            member.join()
            if member.joined is not None and member.joined.error_code:
                return
            settle(self.shard, [member])
            self.classic = member
        else:
            self.consumer = Consumer(self.shard, member_id=f"m{self.count}", topics=topics)
            for _ in range(3):
                self.consumer.heartbeat()

    @rule()
    def leave(self) -> None:
        if self.consumer is not None:
            self.consumer.leave()
        if self.classic is not None:
            self.classic.leave()
        self.consumer = self.classic = None

    @rule(milliseconds=st.sampled_from([1_000, DAY_MS, 4 * DAY_MS]))
    def time_passes(self, milliseconds: int) -> None:
        if milliseconds >= DAY_MS:
            self.consumer = self.classic = None  # their sessions are over
        self.shard.advance(milliseconds)

    @rule(drops_tombstones=st.booleans())
    def compact(self, drops_tombstones: bool) -> None:
        self.shard.compact(drops_tombstones=drops_tombstones)

    @invariant()
    def the_log_says_what_the_core_knows(self) -> None:
        assert known(self.shard.loaded()) == known(self.shard.core)


TestOffsetsMachine = OffsetsMachine.TestCase
TestOffsetsMachine.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
