"""Incremental fetch sessions (KIP-227) against the rules of Kafka's FetchSession."""

from __future__ import annotations

import random

import pytest

from kbroker.errors import ErrorCode
from kbroker.replication.delayed import DelayedFetch, Purgatory
from kbroker.replication.fetch_session import (
    EVICTION_MS,
    FetchPlan,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
    SessionPartition,
    next_epoch,
)
from kbroker.wire.messages.fetch import FetchPartition, PartitionData

TOPIC_ID = b"\x07" * 16


def wanted(partition: int, offset: int = 0) -> SessionPartition:
    result = SessionPartition(PartitionKey("", TOPIC_ID, partition))
    result.update_request(FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100))
    return result


def cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1))


def plan(
    sessions: FetchSessionCache,
    session_id: int,
    epoch: int,
    requested: list[SessionPartition] | None = None,
    forgotten: list[PartitionKey] | None = None,
    *,
    now_ms: int = 0,
    ids: bool = True,
) -> FetchPlan:
    return sessions.plan(
        session_id=session_id,
        session_epoch=epoch,
        uses_topic_ids=ids,
        requested=requested or [],
        forgotten=forgotten or [],
        now_ms=now_ms,
    )


def opened(sessions: FetchSessionCache, count: int = 2, now_ms: int = 0, *, replica_id: int = -1) -> FetchSession:
    session = sessions.maybe_create(
        [wanted(index) for index in range(count)], replica_id=replica_id, uses_topic_ids=True, now_ms=now_ms
    )
    assert session is not None
    return session


def test_a_full_fetch_may_open_a_session_and_a_final_one_may_not() -> None:
    sessions = cache()
    first = plan(sessions, 0, 0, [wanted(0)])
    assert (first.error, first.full, first.may_create, len(first.partitions)) == (ErrorCode.NONE, True, True, 1)
    assert not plan(sessions, 0, -1, [wanted(0)]).may_create


def test_a_session_remembers_what_is_read_and_takes_changes() -> None:
    sessions = cache()
    session = opened(sessions)
    changed = plan(sessions, session.session_id, 1, [wanted(1, 50), wanted(2)])
    assert changed.session is session
    assert not changed.full
    assert [(p.key.partition, p.fetch_offset) for p in changed.partitions] == [(0, 0), (1, 50), (2, 0)]
    fewer = plan(sessions, session.session_id, 2, forgotten=[PartitionKey("", TOPIC_ID, 0)])
    assert [p.key.partition for p in fewer.partitions] == [1, 2]
    assert session.epoch == 3


def test_wrong_ids_and_epochs_are_refused() -> None:
    sessions = cache()
    session = opened(sessions)
    assert plan(sessions, session.session_id + 1, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(sessions, session.session_id, 2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert plan(sessions, session.session_id, 1, ids=False).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert plan(sessions, session.session_id, 1).error == ErrorCode.NONE
    assert plan(sessions, session.session_id, 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_with_an_id_closes_that_session(epoch: int) -> None:
    sessions = cache()
    session = opened(sessions)
    plan(sessions, session.session_id, epoch, [wanted(0)])
    assert len(sessions) == 0


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    session = opened(sessions, 1)
    answer = plan(sessions, session.session_id, 1, forgotten=[PartitionKey("", TOPIC_ID, 0)])
    assert answer.session is None
    assert len(sessions) == 0


def test_a_full_cache_gives_way_to_the_stale_and_the_smaller() -> None:
    sessions = cache(2)
    old = opened(sessions, 3, now_ms=0)
    opened(sessions, 3, now_ms=0)
    small = [wanted(0)]
    # None is stale, and none was created long enough ago to be compared by size.
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=EVICTION_MS) is None
    # Used again, so not stale, and old enough to be compared; the newcomer must be larger.
    now_ms = EVICTION_MS + 1
    for session in list(sessions._sessions.values()):
        assert plan(sessions, session.session_id, 1, now_ms=now_ms).error == 0
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=now_ms) is None
    large = [wanted(index) for index in range(4)]
    assert sessions.maybe_create(large, replica_id=-1, uses_topic_ids=True, now_ms=now_ms) is not None
    assert sessions.evictions == 1
    # The longest unused goes first, whatever its size.
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=3 * now_ms) is not None
    assert old.session_id not in sessions._sessions or len(sessions) == 2


def test_a_follower_displaces_a_consumer_at_once() -> None:
    sessions = cache(1)
    opened(sessions, 5)
    assert sessions.maybe_create([wanted(0)], replica_id=1, uses_topic_ids=True, now_ms=1) is not None
    assert sessions.maybe_create([wanted(0)] * 9, replica_id=-1, uses_topic_ids=True, now_ms=1) is None


def test_a_follower_s_new_session_ends_those_of_the_same_partitions() -> None:
    """A request of the old one may still be under way, and must not tell where the follower was then."""
    sessions = cache()
    closed: list[FetchSession] = []
    old, other_follower, consumer = (opened(sessions, 3, replica_id=replica) for replica in (1, 2, -1))
    old.track_changes(closed.append)
    fetcher = sessions.maybe_create([wanted(7)], replica_id=1, uses_topic_ids=True, now_ms=0)
    assert fetcher is not None and not closed, "of other partitions: another fetcher of the same follower"
    opened(sessions, 2, replica_id=1)
    assert closed == [old]
    assert plan(sessions, old.session_id, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for session in (fetcher, other_follower, consumer):
        assert plan(sessions, session.session_id, 1).error == ErrorCode.NONE


def test_without_slots_there_are_no_sessions() -> None:
    assert cache(0).maybe_create([wanted(0)], replica_id=-1, uses_topic_ids=True, now_ms=0) is None


def test_only_news_is_told() -> None:
    partition = wanted(0)
    answer = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, preferred_read_replica=-1)
    assert partition.changed(answer, False, update=True)
    assert not partition.changed(answer, False, update=True)
    assert partition.changed(answer, True, update=True)
    answer.log_start_offset = 2
    assert partition.changed(answer, False, update=True)
    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.changed(answer, False, update=True)
    answer.error_code = ErrorCode.NONE
    assert partition.changed(answer, False, update=True), "after an error the partition is told again"


def test_epochs_wrap_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def test_a_session_that_tracks_changes_reads_what_something_happened_to() -> None:
    sessions = cache()
    purgatory = Purgatory()
    session = opened(sessions, 3, replica_id=1)
    session.track_changes(purgatory.unwatch_session)
    keys = list(session.partitions)

    def read(*requested: SessionPartition, forgotten: list[PartitionKey] | None = None) -> list[int]:
        found = plan(sessions, session.session_id, session.epoch, list(requested), forgotten)
        return [each.key.partition for each in found.partitions]

    assert read() == [0, 1, 2]  # all once
    assert session.dirty is not None
    for key in keys:
        session.dirty.pop(key)
        purgatory.watch_session(("t", key.partition), session, key)
    assert read() == []
    waiting = session.waiting = DelayedFetch((), 10)
    purgatory.appended(("t", 1), 4)
    assert not waiting.done
    purgatory.followers_news(("t", 2))  # does not wake
    assert not waiting.done
    purgatory.appended(("t", 1), 6)
    assert waiting.done
    assert read() == [1, 2]
    session.dirty.clear()
    assert read(wanted(0, 7)) == [0]
    session.dirty.clear()
    waiting = session.waiting = DelayedFetch((), 10)
    purgatory.partition_changed(("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert waiting.done
    assert read(forgotten=[keys[0]]) == []
    purgatory.unwatch_session(session, keys[0])
    assert ("t", 0) not in purgatory.sessions
    assert plan(sessions, session.session_id, -1).error == ErrorCode.NONE  # closed
    assert not purgatory.sessions and not session.watched
