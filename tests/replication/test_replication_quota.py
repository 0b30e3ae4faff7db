"""Replication throttles as numbers: what counts, when it is too much, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.replication.replication_quota import (
    UNLIMITED,
    ReplicationQuota,
    SimpleRate,
    parse_throttled_replicas,
)


def quota(bound: int = 100, samples: int = 10, window_seconds: int = 1) -> ReplicationQuota:
    made = ReplicationQuota(samples, window_seconds)
    made.bound = bound
    return made


def test_what_kafkas_own_test_expects() -> None:
    """The numbers of ``ReplicationQuotaManagerTest``: 10 samples of a second, 100 bytes a second."""
    throttle = quota(100)
    throttle.record(1, 0)
    assert not throttle.is_exceeded(0)
    throttle.record(99, 0)
    assert not throttle.is_exceeded(0)
    throttle.record(1, 0)
    assert throttle.is_exceeded(0)  # 101 in a window that counts as a whole second
    assert throttle.is_exceeded(500)
    assert not throttle.is_exceeded(1500)  # 101 in 1.5 seconds
    throttle.record(1000, 1500)
    assert throttle.is_exceeded(2000)
    assert not throttle.is_exceeded(12_000)


def test_without_a_rate_nothing_is_exceeded() -> None:
    throttle = quota(UNLIMITED)
    throttle.record(2**62, 0)
    assert not throttle.is_exceeded(0) and throttle.wait_ms(0, 1000) == 0


def test_a_rate_of_nothing_lets_the_first_bytes_pass_and_no_more() -> None:
    throttle = quota(0)
    assert not throttle.is_exceeded(0)
    throttle.record(1, 0)
    assert throttle.is_exceeded(9_999)
    assert throttle.wait_ms(9_000, 1000) == 1000
    assert not throttle.is_exceeded(10_000)  # out of all windows


def test_which_partitions_are_throttled() -> None:
    throttle = quota()
    assert not throttle.is_active and not throttle.is_throttled("t", 0)
    throttle.throttle("t", {0, 2})
    throttle.throttle("all", None)
    assert throttle.is_active
    assert [throttle.is_throttled("t", index) for index in range(3)] == [True, False, True]
    assert throttle.is_throttled("all", 77)
    throttle.throttle("t", {1})
    assert [throttle.is_throttled("t", index) for index in range(3)] == [False, True, False]
    throttle.unthrottle("t")
    throttle.unthrottle("all")
    throttle.unthrottle("never")
    assert not throttle.is_active


def test_throttled_replicas_are_those_of_the_broker() -> None:
    assert parse_throttled_replicas("*", 1) is None
    assert parse_throttled_replicas(" * ", 1) is None
    assert parse_throttled_replicas("", 1) == frozenset()
    assert parse_throttled_replicas("0:1,1:2, 2:1 ,3:11", 1) == frozenset({0, 2})
    assert parse_throttled_replicas("nonsense,1,:,5:x,6:1", 1) == frozenset({6})


def test_the_rate_is_over_the_time_since_the_oldest_sample_that_counts() -> None:
    rate = SimpleRate(samples=2, window_ms=1000)
    assert rate.measure(0) == (0, 1000)
    rate.record(10, 0)
    assert rate.measure(500) == (10, 1000)
    rate.record(10, 1200)
    assert rate.measure(1500) == (20, 1500)
    assert rate.measure(2500) == (10, 1300)  # the first one is over, two windows after its last event
    assert rate.measure(9000) == (0, 1000)


@given(
    bound=st.integers(1_000, 1_000_000),
    chunk=st.integers(500, 200_000),
    seconds=st.integers(30, 60),
    samples=st.integers(1, 12),
)
def test_who_sends_only_when_it_is_not_exceeded_sends_about_the_bound(
    bound: int, chunk: int, seconds: int, samples: int
) -> None:
    throttle = quota(bound, samples)
    now_ms = sent = 0
    while now_ms < seconds * 1000:
        wait_ms = throttle.wait_ms(now_ms, 1000)
        assert (wait_ms > 0) == throttle.is_exceeded(now_ms) and wait_ms <= 1000
        if wait_ms:
            now_ms += wait_ms
            continue
        throttle.record(chunk, now_ms)
        sent += chunk
        now_ms += 10
    # What is too much is forgotten after all windows have passed, so one chunk always goes through in their time.
    once_in_a_while = chunk * (seconds / samples + 2)
    assert sent <= bound * (seconds + samples + 2) + once_in_a_while
    could_be_sent = chunk * seconds * 100
    assert sent >= min(bound * seconds / 2, could_be_sent / 2)
