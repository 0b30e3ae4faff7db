"""Incremental fetch sessions (KIP-227) against the rules of Kafka's FetchSession."""

from __future__ import annotations

import random

import pytest

from kbroker.cores.replication.fetch_session import (
    EVICTION_MS,
    TRACKED_PARTITIONS,
    FetchPlan,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from kbroker.cores.replication.fetch_view import FetchView, PartitionKey, ViewedPartition
from kbroker.cores.replication.purgatory import Purgatory
from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.fetch import FetchPartition, PartitionData

TOPIC_ID = Uuid(b"\x07" * 16)


def wanted(partition: int, offset: int = 0) -> ViewedPartition:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
    return ViewedPartition(PartitionKey("", TOPIC_ID, partition), asked)


def view(*partitions: ViewedPartition, by_follower: bool = False) -> FetchView:
    return FetchView({partition.key: partition for partition in partitions}, by_follower)


def cache(slots: int = 10, purgatory: Purgatory | None = None) -> FetchSessionCache:
    return FetchSessionCache(slots, purgatory or Purgatory(), random.Random(1))


def plan(
    sessions: FetchSessionCache,
    session_id: int,
    epoch: int,
    requested: list[ViewedPartition] | None = None,
    forgotten: list[PartitionKey] | None = None,
    *,
    now_ms: int = 0,
    ids: bool = True,
) -> FetchPlan:
    return sessions.plan(
        session_id=session_id,
        session_epoch=epoch,
        uses_topic_ids=ids,
        requested={partition.key: partition for partition in requested or []},
        forgotten=forgotten or [],
        by_follower=False,
        now_ms=now_ms,
    )


def opened(sessions: FetchSessionCache, count: int = 2, now_ms: int = 0, *, replica_id: int = -1) -> FetchSession:
    read = view(*map(wanted, range(count)), by_follower=replica_id >= 0)
    session = sessions.maybe_create(read, replica_id=replica_id, uses_topic_ids=True, now_ms=now_ms)
    assert session is not None
    return session


def test_a_full_fetch_may_open_a_session_and_a_final_one_may_not() -> None:
    sessions = cache()
    first = plan(sessions, 0, 0, [wanted(0)])
    assert (first.error, first.session, first.may_create, len(first.view.partitions)) == (ErrorCode.NONE, None, True, 1)
    assert not plan(sessions, 0, -1, [wanted(0)]).may_create


def test_a_session_remembers_what_is_read_and_takes_changes() -> None:
    sessions = cache()
    session = opened(sessions)
    changed = plan(sessions, session.session_id, 1, [wanted(1, 50), wanted(2)])
    assert changed.session is session
    assert [(p.key.partition, p.fetch_offset) for p in changed.view.begin_read()] == [(0, 0), (1, 50), (2, 0)]
    fewer = plan(sessions, session.session_id, 2, forgotten=[PartitionKey("", TOPIC_ID, 0)])
    assert [p.key.partition for p in fewer.view.begin_read()] == [1, 2]
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
    small = view(wanted(0))
    # None is stale, and none was created long enough ago to be compared by size.
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=EVICTION_MS) is None
    # Used again, so not stale, and old enough to be compared; the newcomer must be larger.
    now_ms = EVICTION_MS + 1
    for session in list(sessions._sessions.values()):
        assert plan(sessions, session.session_id, 1, now_ms=now_ms).error == 0
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=now_ms) is None
    large = view(*map(wanted, range(4)))
    assert sessions.maybe_create(large, replica_id=-1, uses_topic_ids=True, now_ms=now_ms) is not None
    assert sessions.evictions == 1
    # The longest unused goes first, whatever its size.
    assert sessions.maybe_create(small, replica_id=-1, uses_topic_ids=True, now_ms=3 * now_ms) is not None
    assert old.session_id not in sessions._sessions or len(sessions) == 2


def test_a_follower_displaces_a_consumer_at_once() -> None:
    sessions = cache(1)
    opened(sessions, 5)
    assert (
        sessions.maybe_create(view(wanted(0), by_follower=True), replica_id=1, uses_topic_ids=True, now_ms=1)
        is not None
    )
    assert sessions.maybe_create(view(*map(wanted, range(9))), replica_id=-1, uses_topic_ids=True, now_ms=1) is None


@pytest.mark.parametrize("by_follower", [False, True])
def test_a_session_that_is_displaced_wakes_a_consumer_that_waits_in_it(by_follower: bool) -> None:
    """Nothing watches for the waiting request any more, so it must watch for itself. A follower has given it up."""
    purgatory = Purgatory()
    sessions = cache(1, purgatory)
    session = opened(sessions, replica_id=1 if by_follower else -1)
    waiting = session.view
    waiting.begin_request(min_bytes=100)
    waiting.begin_read()
    for partition in waiting.partitions.values():
        purgatory.watch_fetch(waiting, partition.key, ("t", partition.key.partition))
    late = EVICTION_MS + 1
    assert sessions.maybe_create(view(wanted(0)), replica_id=-1, uses_topic_ids=True, now_ms=late) is not None
    assert waiting.done is not by_follower
    assert not waiting.watched and not purgatory.views


def test_a_follower_s_new_session_ends_those_of_the_same_partitions() -> None:
    """A request of the old one may still be under way, and must not tell where the follower was then."""
    sessions = cache()
    old, other_follower, consumer = (opened(sessions, 3, replica_id=replica) for replica in (1, 2, -1))
    fetcher = sessions.maybe_create(view(wanted(7), by_follower=True), replica_id=1, uses_topic_ids=True, now_ms=0)
    assert fetcher is not None and len(sessions) == 4, "of other partitions: another fetcher of the same follower"
    opened(sessions, 2, replica_id=1)
    assert len(sessions) == 4
    assert plan(sessions, old.session_id, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for session in (fetcher, other_follower, consumer):
        assert plan(sessions, session.session_id, 1).error == ErrorCode.NONE


def test_without_slots_there_are_no_sessions() -> None:
    assert cache(0).maybe_create(view(wanted(0)), replica_id=-1, uses_topic_ids=True, now_ms=0) is None


def test_only_news_is_told() -> None:
    partition = wanted(0)
    answer = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, preferred_read_replica=-1)
    assert partition.update_response(answer, False)
    assert not partition.update_response(answer, False)
    assert partition.update_response(answer, True)
    answer.log_start_offset = 2
    assert partition.update_response(answer, False)
    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.update_response(answer, False)
    answer.error_code = ErrorCode.NONE
    assert partition.update_response(answer, False), "after an error the partition is told again"


def test_epochs_wrap_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def test_only_a_small_session_of_a_consumer_reads_everything_each_time() -> None:
    sessions = cache()
    assert opened(sessions, 1, replica_id=1).view.dirty is not None
    assert opened(sessions, TRACKED_PARTITIONS).view.dirty is not None
    small = opened(sessions, TRACKED_PARTITIONS - 1).view
    assert small.dirty is None
    for _ in range(2):
        assert len(small.begin_read()) == TRACKED_PARTITIONS - 1


def test_a_session_that_tracks_changes_reads_what_something_happened_to() -> None:
    purgatory = Purgatory()
    sessions = cache(10, purgatory)
    session = opened(sessions, 3, replica_id=1)
    view = session.view
    keys = list(view.partitions)

    def read(*requested: ViewedPartition, forgotten: list[PartitionKey] | None = None, min_bytes: int = 1) -> list[int]:
        found = plan(sessions, session.session_id, session.epoch, list(requested), forgotten)
        found.view.begin_request(min_bytes)
        return [each.key.partition for each in found.view.begin_read()]

    assert read() == [0, 1, 2]  # all once
    for key in keys:
        purgatory.watch_fetch(view, key, ("t", key.partition))
        view.has_no_news(key)
    assert read(min_bytes=10) == []
    purgatory.appended(("t", 1), 4)
    assert not view.done
    purgatory.mark(("t", 2))  # does not wake
    assert not view.done
    purgatory.appended(("t", 1), 6)
    assert view.done
    assert read() == [1, 2]
    for key in keys:
        view.has_no_news(key)
    assert read(wanted(0, 7)) == [0]
    view.has_no_news(keys[0])
    assert not read()
    purgatory.partition_changed(("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert view.done
    assert read(forgotten=[keys[0]]) == []
    assert ("t", 0) not in purgatory.views
    assert plan(sessions, session.session_id, -1).error == ErrorCode.NONE  # closed
    assert not purgatory.views and not view.watched


def test_another_isolation_level_or_broker_epoch_looks_at_all_again() -> None:
    view = opened(cache(), 2, replica_id=1).view
    for committed_only, replica_epoch, expected in (
        (False, -1, 0),
        (True, -1, 2),
        (True, -1, 0),
        (True, 5, 2),
        (True, 5, 0),
    ):
        for key in view.partitions:
            view.has_no_news(key)
        view.begin_request(1, committed_only=committed_only, replica_epoch=replica_epoch)
        assert len(view.begin_read()) == expected
    view.begin_request(1, committed_only=True, replica_epoch=5, may_move=True)
    assert len(view.begin_read()) == 2


def test_a_partition_whose_records_were_sent_is_served_last() -> None:
    for count in (3, TRACKED_PARTITIONS):
        view = opened(cache(), count).view
        first, second, *rest = view.begin_read()
        view.sent_records(second.key)
        view.sent_records(PartitionKey("", TOPIC_ID, 99))  # forgotten meanwhile
        assert view.begin_read() == [first, *rest, second]
