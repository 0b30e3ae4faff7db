"""Rates and buckets, against models that keep every event."""

from __future__ import annotations

from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.quotas.meters import MAX_THROTTLE_MS, QuotaRate, TokenBucket

EVENTS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), min_size=1, max_size=40)


class NaiveRate:
    """Windows as plain lists of what was counted in them; one that nothing happened in for long enough is dropped."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples, self.window_ms = samples, window_ms
        self.windows: list[tuple[int, list[tuple[int, int]]]] = []

    def record(self, value: int, now_ms: int) -> None:
        if not self.windows or now_ms - self.windows[-1][0] >= self.window_ms:
            self.windows.append((now_ms, []))
        self.windows[-1][1].append((now_ms, value))

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        kept = [
            (start, events)
            for start, events in self.windows[-self.samples - 1 :]
            if now_ms - events[-1][0] < self.samples * self.window_ms
        ]
        total = sum(value for _, events in kept for _, value in events)
        elapsed = now_ms - kept[0][0] if kept else 0
        while elapsed // self.window_ms < self.samples - 1:
            elapsed += self.window_ms
        rate = total / (max(elapsed, 1) / 1000)
        return 0 if rate <= bound else floor((rate - bound) / bound * max(elapsed, 1) + 0.5)


@given(EVENTS, st.integers(1, 5), st.integers(1, 10_000))
def test_a_rate_is_that_of_the_windows_that_count(events: list[tuple[int, int]], samples: int, bound: int) -> None:
    rate, model = QuotaRate(samples, 1000), NaiveRate(samples, 1000)
    now_ms = 0
    for pause, value in events:
        now_ms += pause
        rate.record(value, now_ms)
        model.record(value, now_ms)
        assert abs(rate.throttle_ms(bound, now_ms) - model.throttle_ms(bound, now_ms)) <= 1


@given(EVENTS, st.integers(2, 5), st.integers(1, 10_000))
def test_after_the_throttle_time_the_rate_is_within_its_bound(
    events: list[tuple[int, int]], samples: int, bound: int
) -> None:
    rate = QuotaRate(samples, 1000)
    now_ms = 0
    for pause, value in events:
        now_ms += pause
        rate.record(value, now_ms)
    first = rate.throttle_ms(bound, now_ms)
    # A window that is not whole counts as if it were: a second round may be needed, but no third by more than that.
    now_ms += first
    now_ms += rate.throttle_ms(bound, now_ms) + samples * 1000
    assert rate.throttle_ms(bound, now_ms) == 0


def test_what_is_taken_back_was_never_there() -> None:
    rate = QuotaRate(11, 1000)
    rate.record(500, 100)
    rate.record(1_000_000, 200)
    assert rate.throttle_ms(100, 200) > 0
    rate.record(-1_000_000, 200)
    assert rate.throttle_ms(100, 200) == 0


def test_a_rate_of_a_kafka_broker() -> None:
    """10 windows are whole before there is any: 20,000 bytes are 2,000 a second, twice the bound."""
    rate = QuotaRate(11, 1000)
    rate.record(20_000, 0)
    assert rate.throttle_ms(1000, 0) == 10_000
    assert rate.throttle_ms(2000, 0) == 0
    assert rate.throttle_ms(0, 0) == MAX_THROTTLE_MS
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 50)), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_a_bucket_fills_at_its_rate(events: list[tuple[int, int]], samples: int, bound: int) -> None:
    bucket = TokenBucket(samples, 1000)
    tokens, last, now_ms = float(samples * bound), 0, 0
    for pause, taken in events:
        now_ms += pause
        tokens = min(samples * bound, tokens + bound * (now_ms - last) / 1000) - taken
        last = now_ms
        bucket.take(taken, bound, now_ms)
        expected = 0 if tokens >= 0 else -tokens / bound * 1000
        assert bucket.throttle_ms(bound, now_ms) == pytest.approx(expected, abs=1)


def test_a_bucket_that_is_full_is_as_good_as_new() -> None:
    bucket = TokenBucket(10, 1000)
    assert bucket.is_idle(0)
    bucket.take(25, 2, 0)
    assert bucket.throttle_ms(2, 0) == 2500
    assert not bucket.is_idle(60_000)  # it may still owe: only a look tells
    assert bucket.throttle_ms(2, 60_000) == 0
    assert not bucket.is_idle(69_999)
    assert bucket.is_idle(70_000)
