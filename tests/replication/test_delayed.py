"""The purgatory: who is woken, by what, how often."""

from __future__ import annotations

from typing import Any

from kbroker.replication.delayed import DelayedFetch, DelayedProduce, Purgatory


def test_a_fetch_is_done_once_enough_bytes_came() -> None:
    purgatory = Purgatory()
    woken: list[str] = []
    fetch = DelayedFetch([("a", 0), ("a", 1)], 100)
    fetch.wake = lambda: woken.append("fetch")
    purgatory.watch_fetch(fetch)
    purgatory.advanced(("a", 0), 60)
    purgatory.advanced(("b", 0), 1000)
    assert not fetch.done
    purgatory.advanced(("a", 1), 40)
    purgatory.advanced(("a", 1), 40)
    assert fetch.done
    assert woken == ["fetch"]
    purgatory.unwatch_fetch(fetch)
    assert purgatory.fetch_watch_count == 0


def test_an_append_touches_only_the_watchers_of_its_partition() -> None:
    purgatory = Purgatory()
    others = [DelayedFetch([("t", index)], 1) for index in range(100)]
    for fetch in others:
        purgatory.watch_fetch(fetch)
    purgatory.advanced(("t", 7), 1)
    assert [fetch.done for fetch in others].index(True) == 7
    assert sum(fetch.done for fetch in others) == 1


def test_a_change_of_leadership_wakes_readers_and_fails_producers() -> None:
    purgatory = Purgatory()
    results: list[dict[Any, Any]] = []
    fetch = DelayedFetch([("a", 0)], 100)
    produce = DelayedProduce({("a", 0): 10}, results.append)
    purgatory.watch_fetch(fetch)
    purgatory.watch_produce(produce)
    purgatory.partition_changed(("a", 0), "moved")
    assert fetch.done
    assert results == [{("a", 0): "moved"}]
    assert purgatory.produce_watch_count == 0


def test_a_produce_is_done_when_every_partition_is_replicated() -> None:
    purgatory = Purgatory()
    results: list[dict[Any, Any]] = []
    produce = DelayedProduce({("a", 0): 10, ("a", 1): 5}, results.append)
    purgatory.watch_produce(produce)
    purgatory.high_watermark_moved(("a", 0), 9)
    purgatory.high_watermark_moved(("a", 1), 5)
    assert not produce.done
    purgatory.high_watermark_moved(("a", 0), 12)
    assert results == [{("a", 0): None, ("a", 1): None}]
    assert purgatory.produce_watch_count == 0


def test_what_is_left_when_the_time_is_out_gets_the_error() -> None:
    results: list[dict[Any, Any]] = []
    produce = DelayedProduce({("a", 0): 10, ("a", 1): 5}, results.append)
    produce.high_watermark_reached(("a", 1), 7)
    produce.expire("late")
    produce.expire("later")
    assert results == [{("a", 1): None, ("a", 0): "late"}]


def test_a_reader_of_what_is_committed_is_not_woken_by_what_it_cannot_see() -> None:
    purgatory = Purgatory()
    committed, anything = DelayedFetch([("a", 0)], 10, committed_only=True), DelayedFetch([("a", 0)], 10)
    purgatory.watch_fetch(committed)
    purgatory.watch_fetch(anything)
    purgatory.advanced(("a", 0), 100, stable=False)
    assert anything.done and not committed.done
    purgatory.advanced(("a", 0), 10)
    assert committed.done


def test_operations_expire_in_the_order_of_their_deadlines() -> None:
    purgatory = Purgatory()
    expirations = purgatory.expirations
    operations = [DelayedProduce({"p": 5}, lambda results: None) for _ in range(4)]
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
    purgatory.high_watermark_moved("p", 5)
    assert len(expirations) == 0 and expirations.next_deadline() == float("inf")
