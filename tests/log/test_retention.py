from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.log.log_config import LogConfig
from kbroker.log.retention import SegmentFacts, breached_by_size, breached_by_start_offset, breached_by_time, deletable

SEGMENTS = [SegmentFacts(i * 10, i * 10 + 10, 100, 1000 * (i + 1)) for i in range(4)]
EMPTY_LAST = [*SEGMENTS, SegmentFacts(40, 40, 0, 0)]


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (25, 2), (40, 3)])
def test_by_log_start_offset_never_the_last(start: int, count: int) -> None:
    assert breached_by_start_offset(SEGMENTS, 40, start) == count


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 4), (99, 3), (100, 3), (101, 2), (400, 0), (1000, 0)])
def test_by_size_what_is_left_is_not_below_the_limit(limit: int, count: int) -> None:
    assert breached_by_size(SEGMENTS, 40, limit) == count


@pytest.mark.parametrize(("now", "count"), [(1500, 0), (1501, 1), (3501, 3), (99_999, 4)])
def test_by_time_all_records_are_older(now: int, count: int) -> None:
    assert breached_by_time(SEGMENTS, 40, 500, now) == count
    assert breached_by_time(SEGMENTS, 40, -1, now) == 0


def test_an_empty_last_segment_stays() -> None:
    assert breached_by_time(EMPTY_LAST, 40, 500, 99_999) == 4
    assert breached_by_size(EMPTY_LAST, 40, 0) == 4


@pytest.mark.parametrize("high_watermark", range(0, 41, 5))
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int) -> None:
    for count in (
        breached_by_time(SEGMENTS, high_watermark, 0, 99_999),
        breached_by_size(SEGMENTS, high_watermark, 0),
        breached_by_start_offset(SEGMENTS, high_watermark, 30),
    ):
        assert count <= high_watermark // 10


def test_a_young_segment_stops_the_search() -> None:
    segments = [SEGMENTS[0], SEGMENTS[1]._replace(largest_timestamp=99_000), *SEGMENTS[2:]]
    assert breached_by_time(segments, 40, 5000, 99_999) == 1


def test_the_policy_decides_which_rules_hold() -> None:
    config = LogConfig(retention_ms=500, retention_bytes=-1)
    assert deletable(SEGMENTS, config, high_watermark=40, log_start_offset=0, now_ms=3501) == 3
    compact = replace(config, cleanup_policy=frozenset({"compact"}))
    assert deletable(SEGMENTS, compact, high_watermark=40, log_start_offset=0, now_ms=3501) == 0
    assert deletable(SEGMENTS, compact, high_watermark=40, log_start_offset=20, now_ms=3501) == 2
    both = replace(config, cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=150)
    assert deletable(SEGMENTS, both, high_watermark=40, log_start_offset=10, now_ms=0) == 2
