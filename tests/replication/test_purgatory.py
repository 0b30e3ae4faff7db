"""The purgatory: who is woken, by what, how often."""

from __future__ import annotations

from typing import Any

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey
from kbroker.cores.replication.purgatory import Key, OffsetWaiter, Purgatory
from kbroker.errors import ErrorCode
from kbroker.types import ZERO_UUID, Uuid


def waiting(purgatory: Purgatory, *keys: Key, min_bytes: int, committed_only: bool = False) -> FetchView:
    """A consumer's Fetch that has found nothing yet."""
    view = FetchView({}, by_follower=False)
    view.begin_request(min_bytes, committed_only=committed_only)
    view.begin_read()
    for topic, index in keys:
        purgatory.watch_fetch(view, PartitionKey(topic, ZERO_UUID, index), (topic, index))
    return view


def test_a_fetch_is_done_once_enough_bytes_came() -> None:
    purgatory = Purgatory()
    woken: list[str] = []
    fetch = waiting(purgatory, ("a", 0), ("a", 1), min_bytes=100)
    fetch.wake = lambda: woken.append("fetch")
    purgatory.high_watermark_moved(("a", 0), 0, 60)
    purgatory.high_watermark_moved(("b", 0), 0, 1000)
    assert not fetch.done
    purgatory.high_watermark_moved(("a", 1), 0, 40)
    purgatory.high_watermark_moved(("a", 1), 0, 40)
    assert fetch.done
    assert woken == ["fetch"]
    purgatory.unwatch_fetch(fetch)
    assert purgatory.fetch_watch_count == 0


def test_an_append_touches_only_the_watchers_of_its_partition() -> None:
    purgatory = Purgatory()
    others = [waiting(purgatory, ("t", index), min_bytes=1) for index in range(100)]
    purgatory.high_watermark_moved(("t", 7), 0, 1)
    assert [fetch.done for fetch in others].index(True) == 7
    assert sum(fetch.done for fetch in others) == 1


def test_a_change_of_leadership_wakes_readers_and_fails_producers() -> None:
    purgatory = Purgatory()
    results: list[dict[Any, Any]] = []
    fetch = waiting(purgatory, ("a", 0), min_bytes=100)
    produce = OffsetWaiter({("a", 0): 10}, results.append)
    purgatory.watch_produce(produce)
    purgatory.partition_changed(("a", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert fetch.done
    assert results == [{("a", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}]
    assert purgatory.produce_watch_count == 0


def test_a_produce_is_done_when_every_partition_is_replicated() -> None:
    purgatory = Purgatory()
    results: list[dict[Any, Any]] = []
    produce = OffsetWaiter({("a", 0): 10, ("a", 1): 5}, results.append)
    purgatory.watch_produce(produce)
    purgatory.high_watermark_moved(("a", 0), 9, 0)
    purgatory.high_watermark_moved(("a", 1), 5, 0)
    assert not produce.done
    purgatory.high_watermark_moved(("a", 0), 12, 0)
    assert results == [{("a", 0): None, ("a", 1): None}]
    assert purgatory.produce_watch_count == 0


def test_what_is_left_when_the_time_is_out_gets_the_error() -> None:
    results: list[dict[Any, Any]] = []
    produce = OffsetWaiter({("a", 0): 10, ("a", 1): 5}, results.append)
    produce.reached(("a", 1), 7)
    produce.expire(ErrorCode.REQUEST_TIMED_OUT)
    produce.expire(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert results == [{("a", 1): None, ("a", 0): ErrorCode.REQUEST_TIMED_OUT}]


def test_a_reader_of_what_is_committed_is_not_woken_by_what_it_cannot_see() -> None:
    purgatory = Purgatory()
    committed = waiting(purgatory, ("a", 0), min_bytes=10, committed_only=True)
    anything = waiting(purgatory, ("a", 0), min_bytes=10)
    purgatory.high_watermark_moved(("a", 0), 0, 100, stable=False)
    assert anything.done and not committed.done
    purgatory.high_watermark_moved(("a", 0), 0, 10)
    assert committed.done


def test_operations_expire_in_the_order_of_their_deadlines() -> None:
    purgatory = Purgatory()
    expirations = purgatory.expirations
    operations = [OffsetWaiter({("p", 0): 5}, lambda results: None) for _ in range(4)]
    for operation in operations:
        purgatory.watch_produce(operation)
    assert expirations.add(operations[0], 30_000, 100.0) == 130.0
    assert expirations.add(operations[1], 1_000, 101.0) == 102.0
    assert expirations.add(operations[2], 30_000, 102.0) == 132.0
    assert expirations.add(operations[3], 30_000, 103.0) == 133.0
    assert expirations.next_deadline() == 102.0
    assert expirations.take_expired(101.9) == []
    assert expirations.take_expired(131.0) == [operations[0], operations[1]]
    assert expirations.next_deadline() == 132.0
    purgatory.high_watermark_moved(("p", 0), 5, 0)
    assert len(expirations) == 0 and expirations.next_deadline() == float("inf")


def test_a_view_that_names_a_topic_and_its_successor_hears_of_the_successor() -> None:
    """A session may add a topic created again before it forgets the deleted one, by whose topic id it knew it."""
    purgatory = Purgatory()
    view = FetchView({}, by_follower=True)
    view.track_changes()
    view.begin_request(min_bytes=1)
    deleted, created = (PartitionKey("", Uuid(bytes([number]) * 16), 0) for number in (1, 2))
    purgatory.watch_fetch(view, deleted, ("t", 0))
    purgatory.watch_fetch(view, created, ("t", 0))
    purgatory.unwatch_fetch(view, deleted)
    purgatory.appended(("t", 0), 1)
    assert view.done and list(view.dirty or ()) == [created]
    purgatory.unwatch_fetch(view)
    assert not purgatory.views and not view.watched


def test_bytes_that_come_during_a_read_count_with_those_that_it_finds_later() -> None:
    """A read of many partitions gives way to appends between two of its steps."""
    purgatory = Purgatory()
    view = waiting(purgatory, ("t", 0), min_bytes=100)
    purgatory.high_watermark_moved(("t", 0), 0, 60)  # read already
    assert not view.is_due
    view.readable_bytes += 50  # of another partition, in the next step
    assert view.is_due
    view.begin_read()
    view.readable_bytes = 99
    assert not view.is_due
