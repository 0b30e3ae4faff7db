"""Offsets that are committed in transactions: when they count, what holds them, and who may commit them (KIP-447)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.offsets import OffsetKey, PendingOffsets
from kbroker.cores.groups.records import OffsetAndMetadata
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.classic_groups import JoinGroupRequest
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
from tests.groups.consumer_harness import settle as settle_consumers
from tests.groups.harness import GROUP, Member, settle

E = ErrorCode
FIRST, SECOND = 10, 11
"""Producer ids."""


class Shard(ConsumerShard):
    """A shard whose log also holds the producer of each record, and markers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.entries: list[Any] = []

    def store(self, result: CoordinatorResult[Any], producer_id: int = -1) -> Any:
        for record in result.records:
            self.core.replay(record, self.now_ms, offset=len(self.entries), producer_id=producer_id)
            self.entries.append((record, producer_id))
        return result.response

    def run(self, result: CoordinatorResult[Any]) -> Any:
        self.entries += [(record, -1) for record in result.records]
        return super().run(result)

    def end(self, producer_id: int, commit: bool) -> None:
        self.core.replay_end_transaction(producer_id, commit)
        self.entries.append((producer_id, commit))

    def restarted(self) -> Shard:
        """A new one from the log."""
        fresh = Shard(topics={})
        fresh.core.on_topics(self.topics, (), False)
        for offset, (what, how) in enumerate(self.entries):
            if isinstance(what, int):
                fresh.core.replay_end_transaction(what, how)
            else:
                fresh.core.replay(what, self.now_ms, offset=offset, producer_id=how)
        fresh.entries = list(self.entries)
        fresh.now_ms = self.now_ms
        fresh.core.on_loaded(self.now_ms)
        return fresh

    def commit(
        self,
        offset: int,
        producer_id: int = -1,
        partition: int = 0,
        version: int = 5,
        topic_id: Uuid | None = None,
        **member: Any,
    ) -> None:
        """Commit an offset, in a transaction where a producer is named. ``topic_id``: None for the current topic's."""
        if producer_id < 0:
            committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics = [OffsetCommitRequestTopic(name="t", partitions=[committed])]
            request = OffsetCommitRequest(group_id=GROUP, topics=topics)
            self.store(self.core.commit_offsets(request, 8, self.now_ms))
            return
        pending = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        if topic_id is None:
            known = self.topics.by_name("t")
            topic_id = known.id if known else ZERO_UUID
        topic = TxnOffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[pending])
        in_transaction = TxnOffsetCommitRequest(group_id=GROUP, topics=[topic], **member)
        self.store(self.core.commit_offsets_in_transaction(in_transaction, version, self.now_ms), producer_id)

    def fetch(self, partition: int = 0, stable: bool = False) -> int | ErrorCode:
        """The offset, -1 for none, or the error."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        found = self.core.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=topics), {}, stable)
        result = found.topics[0].partitions[0]
        return ErrorCode(result.error_code) if result.error_code else result.committed_offset


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_an_offset_counts_once_its_transaction_is_committed(shard: Shard, commit: bool, restart: bool) -> None:
    shard.commit(5)
    shard.commit(7, FIRST)
    if restart:
        shard = shard.restarted()
    assert shard.fetch() == 5
    assert shard.fetch(stable=True) is E.UNSTABLE_OFFSET_COMMIT
    assert shard.fetch(1, stable=True) == -1
    shard.end(FIRST, commit)
    if restart:
        shard = shard.restarted()
    assert shard.fetch(stable=True) == (7 if commit else 5)


def test_of_two_transactions_the_later_commit_stands(shard: Shard) -> None:
    shard.commit(7, FIRST)
    shard.commit(9, SECOND)
    shard.end(SECOND, True)
    assert shard.fetch() == 9
    assert shard.fetch(stable=True) is E.UNSTABLE_OFFSET_COMMIT
    shard.end(FIRST, True)  # ended later, but committed its offset before
    assert shard.fetch(stable=True) == 9
    assert shard.restarted().fetch(stable=True) == 9


def test_a_commit_beside_the_transaction_stands_if_it_came_later(shard: Shard) -> None:
    shard.commit(7, FIRST)
    shard.commit(5)
    shard.commit(3, FIRST, partition=1)
    shard.end(FIRST, True)
    assert shard.fetch() == 5 and shard.fetch(1) == 3


def test_the_markers_of_others_change_nothing(shard: Shard) -> None:
    shard.commit(7, FIRST)
    shard.end(SECOND, True)
    assert shard.fetch(stable=True) is E.UNSTABLE_OFFSET_COMMIT


def test_all_topics_are_told_with_what_is_unstable(shard: Shard) -> None:
    shard.commit(5)
    shard.commit(6, partition=1)
    shard.commit(7, FIRST)
    found = shard.core.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None), {}, True)
    (topic,) = found.topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions] == [
        (0, -1, E.UNSTABLE_OFFSET_COMMIT),
        (1, 6, 0),
    ]


def test_deleting_an_offset_deletes_what_is_pending(shard: Shard) -> None:
    shard.commit(7, FIRST)
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name="t", partitions=[partition])]
    shard.store(shard.core.delete_offsets(OffsetDeleteRequest(group_id=GROUP, topics=topics)))
    assert shard.fetch(stable=True) == -1
    shard.end(FIRST, True)
    assert shard.fetch() == -1 and shard.restarted().fetch() == -1


def test_deleting_the_group_or_the_topic_deletes_what_is_pending() -> None:
    known = Shard().topics.by_name("t")
    assert known is not None
    deletions: tuple[Callable[[Shard], Any], ...] = (
        lambda shard: shard.core.admin.delete_group(GROUP),
        lambda shard: shard.core.on_topics_deleted([("t", known.id)]),
    )
    for delete in deletions:
        shard = Shard()
        shard.commit(7, FIRST)
        shard.commit(5, partition=1)
        shard.store(delete(shard))
        assert shard.fetch(stable=True) == -1
        shard.end(FIRST, True)
        assert shard.fetch() == -1


@pytest.mark.parametrize("old", ["nothing", "committed", "pending"])
@pytest.mark.parametrize("restart", [False, True])
def test_what_is_committed_of_a_topic_created_again_outlives_the_old_one(old: str, restart: bool) -> None:
    """The end of the old topic may reach the shard only after offsets of the new one."""
    shard = Shard()
    gone, new = Uuid(b"o" * 16), Uuid(b"n" * 16)
    for partition in (0, 1):
        if old == "pending":
            shard.commit(5, FIRST, partition, topic_id=gone)
        elif old == "committed":
            shard.commit(5, FIRST, partition, topic_id=gone)
            shard.end(FIRST, True)
    shard.commit(7, SECOND, topic_id=new)
    shard.store(shard.core.on_topics_deleted([("t", gone)]))
    if restart:
        shard = shard.restarted()
    assert shard.fetch(stable=True) is E.UNSTABLE_OFFSET_COMMIT
    assert shard.fetch(1, stable=True) == -1, "the old topic's alone"
    shard.end(SECOND, True)
    shard.end(FIRST, True)
    assert shard.fetch(stable=True) == 7 and shard.fetch(1) == -1
    shard.store(shard.core.on_topics_deleted([("t", new)]))
    assert shard.fetch() == -1


def test_neither_an_offset_nor_its_group_expires_under_an_open_transaction(shard: Shard) -> None:
    shard.commit(5)
    shard.commit(7, FIRST)
    shard.commit(6, SECOND, partition=1)
    week_ms = 8 * 24 * 3_600_000
    shard.advance(week_ms)
    assert shard.fetch() == 5
    shard.end(FIRST, False)
    shard.advance(week_ms)
    assert shard.fetch() == -1
    assert list(shard.core.admin.list_groups((), ()))  # partition 1 is still pending
    shard.end(SECOND, False)
    shard.advance(week_ms)
    assert not list(shard.core.admin.list_groups((), ()))


def test_metadata_that_is_too_long_is_refused_alone(shard: Shard) -> None:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="x" * length)
        for index, length in ((0, 4096), (1, 4097))
    ]
    request = TxnOffsetCommitRequest(
        group_id=GROUP, topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    response = shard.store(shard.core.commit_offsets_in_transaction(request, 5, shard.now_ms), FIRST)
    errors = [each.error_code for each in response.topics[0].partitions]
    assert errors == [0, E.OFFSET_METADATA_TOO_LARGE]
    shard.end(FIRST, True)
    assert shard.fetch() == 1 and shard.fetch(1) == -1


def code(shard: Shard, **member: Any) -> ErrorCode:
    try:
        shard.commit(1, FIRST, **member)
    except ApiError as error:
        return error.code
    return E.NONE


def test_a_member_of_a_classic_group_is_fenced_by_its_generation(shard: Shard) -> None:
    member = Member(shard)
    member.join()
    settle(shard, [member])
    member.sync({member.member_id: b""})
    known = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
    assert code(shard, **known) is E.NONE
    assert code(shard) is E.NONE  # a producer that says nothing of a member
    assert code(shard, **known | {"generation_id_or_member_epoch": member.generation_id - 1}) is E.ILLEGAL_GENERATION
    assert code(shard, **known | {"generation_id_or_member_epoch": -1}) is E.ILLEGAL_GENERATION
    assert code(shard, **known | {"member_id": "another"}) is E.UNKNOWN_MEMBER_ID
    # In the middle of a rebalance the last generation may still commit what it has read.
    other = Member(shard)
    other.join()
    assert code(shard, **known) is E.NONE


def test_a_member_of_a_consumer_group_is_fenced_by_its_epoch(shard: Shard) -> None:
    member = Consumer(shard, member_id="a" * 22)
    settle_consumers(shard, [member])
    known = {"member_id": member.member_id, "generation_id_or_member_epoch": member.epoch}
    assert code(shard, **known) is E.NONE
    assert code(shard) is E.NONE
    ahead = known | {"generation_id_or_member_epoch": member.epoch + 1}
    assert code(shard, **ahead) is E.ILLEGAL_GENERATION
    assert code(shard, version=6, **ahead) is E.STALE_MEMBER_EPOCH  # KIP-1319
    assert code(shard, **known | {"member_id": "another"}) is E.UNKNOWN_MEMBER_ID
    other = Consumer(shard, member_id="b" * 22)
    settle_consumers(shard, [member, other])
    # By the epoch that it had before, it may commit what it has kept (KIP-1251), and nothing else.
    kept = {partition for _, partition in member.partitions}
    assert 0 < len(kept) < 6
    for partition in range(6):
        for version, refused in ((5, E.ILLEGAL_GENERATION), (6, E.STALE_MEMBER_EPOCH)):
            expected = E.NONE if partition in kept else refused
            assert code(shard, **known, partition=partition, version=version) is expected


def test_a_group_that_does_not_exist_takes_commits_of_no_generation_only(shard: Shard) -> None:
    assert code(shard, generation_id_or_member_epoch=1, member_id="a") is E.ILLEGAL_GENERATION
    assert code(shard, version=6, generation_id_or_member_epoch=1, member_id="a") is E.GROUP_ID_NOT_FOUND
    assert code(shard, member_id="a") is E.NONE


def test_pending_offsets_are_gone_with_their_transaction() -> None:
    pending = PendingOffsets()
    one, two = OffsetKey("g", "t", 0), OffsetKey("g", "t", 1)
    offset = OffsetAndMetadata(3, topic_id=ZERO_UUID)
    pending.put(FIRST, one, offset)
    pending.put(FIRST, two, offset)
    pending.put(SECOND, one, offset)
    assert set(pending.of_group("g")) == {("t", 0), ("t", 1)} and pending.has(*one)
    pending.remove(one)
    assert not pending.has(*one) and pending.has(*two)
    assert pending.end(FIRST) == {two: offset}
    assert pending.end(SECOND) == {} and "g" not in pending and not list(pending.offsets())


@pytest.mark.parametrize("producer_id", [-1, FIRST])
def test_a_group_is_there_also_if_each_of_its_offsets_was_refused(producer_id: int) -> None:
    """The group stays, as in Kafka: a member that brings no protocol is told so, not that it is unknown."""
    shard = Shard(topics={"t": 1})
    joining = JoinGroupRequest(
        group_id=GROUP, member_id="nobody", protocol_type="consumer", session_timeout_ms=10_000, rebalance_timeout_ms=1
    )

    def joined() -> int:
        result = shard.core.join_group(joining, ClientContext("c", "/h", 5), shard.now_ms)
        shard.run(result)
        response: Any = result.completed[0][1] if result.completed else result.response
        return int(response.error_code)

    assert joined() == E.UNKNOWN_MEMBER_ID
    long = "x" * 5000
    if producer_id < 0:
        refused = OffsetCommitRequestPartition(partition_index=0, committed_metadata=long)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[refused])]
        request = OffsetCommitRequest(group_id=GROUP, topics=topics)
        told = shard.store(shard.core.commit_offsets(request, 8, shard.now_ms))
    else:
        pending = TxnOffsetCommitRequestPartition(partition_index=0, committed_metadata=long)
        named = [TxnOffsetCommitRequestTopic(name="t", partitions=[pending])]
        asked = TxnOffsetCommitRequest(group_id=GROUP, producer_id=producer_id, producer_epoch=0, topics=named)
        told = shard.store(shard.core.commit_offsets_in_transaction(asked, 5, shard.now_ms))
    assert told.topics[0].partitions[0].error_code == E.OFFSET_METADATA_TOO_LARGE
    assert joined() == E.INCONSISTENT_GROUP_PROTOCOL
    assert [each.group_id for each in shard.core.admin.list_groups((), ())] == [GROUP]
    shard.advance(shard.settings.offsets_retention_check_interval_ms)
    assert joined() == E.UNKNOWN_MEMBER_ID
