"""The last record of each key, a pace, and a sieve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.latest_per_key import LatestPerKey
from kbroker.client.records_io.record_filter import parse_filter
from kbroker.client.records_io.replay import Pace
from kbroker.client.records_io.sieve import Sieve
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

CREATE = TimestampType.CREATE_TIME
KEYS = st.none() | st.sampled_from([b"", b"a", b"b"])


@given(st.lists(st.tuples(st.integers(0, 1), KEYS, st.none() | st.binary(max_size=3)), max_size=30))
def test_what_a_dictionary_keeps(given_records: list[tuple[int, bytes | None, bytes | None]]) -> None:
    latest, expected = LatestPerKey(), {}
    for offset, (partition, key, value) in enumerate(given_records):
        record = Record(offset, 0, key, value)
        latest.add(partition, record, CREATE)
        expected[partition, key] = record
    kept = [(entry.partition, entry.record) for entry in latest.kept()]
    assert kept == sorted((p, record) for (p, key), record in expected.items() if key is not None)
    assert latest.without_key == sum(key is None for _, key, _ in given_records)
    assert not latest.is_full and len(latest) == len(kept)


def test_the_bounds() -> None:
    by_keys, by_bytes = LatestPerKey(max_keys=2), LatestPerKey(max_bytes=10_000)
    for number in range(100):
        by_keys.add(0, Record(number, 0, b"%d" % (number % 2), b""), CREATE)
        by_bytes.add(0, Record(number, 0, b"k", b"x" * 5_000), CREATE)
    assert not by_keys.is_full and not by_bytes.is_full
    by_keys.add(0, Record(0, 0, b"third", b""), CREATE)
    by_bytes.add(1, Record(0, 0, b"k", b"x" * 5_000), CREATE)
    assert by_keys.is_full and by_bytes.is_full


def test_a_pace_is_kept_over_time() -> None:
    now, pace = 100.0, Pace(10, 100.0)
    for _ in range(50):
        now += pace.wait_for(1, now)
    assert abs(now - 104.9) < 1e-6
    # What was missed during a long pause is not made up for.
    now += 60
    start = now
    for _ in range(50):
        now += pace.wait_for(1, now)
    assert now - start > 4.7


def test_a_sieve_without_a_filter_lets_everything_through() -> None:
    record = Record(0, 0, b"k", b"v")
    found = Sieve().sift(0, record)
    assert found is not None and found.record is record
    assert Sieve(parse_filter("partition = 1")).sift(0, record) is None
