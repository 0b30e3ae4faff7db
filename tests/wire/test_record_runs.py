"""Records that are alike are read together, and are those that the general way reads one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.wire.batch_header import HEADER_SIZE, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.record_batch import Record, build_batch, iter_payload
from kbroker.wire.record_runs import record_runs

contents = st.one_of(st.binary(max_size=3), st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192]))
alike = st.tuples(st.integers(1, 150), contents, st.none() | contents, st.integers(0, 130), st.integers(0, 9000))
"""A number of records, key, value, the time after the first record, and a gap in the offsets before them."""


def batch(groups: list[tuple[int, bytes | None, bytes | None, int, int]]) -> bytes:
    records = [Record(0, 5, b"first", b"")]
    offset = 0
    for count, key, value, later, gap in groups:
        offset += gap
        for _ in range(count):
            offset += 1
            # The last bytes differ where there are any, as those of a partition and of an offset do.
            end = offset.to_bytes(3, "big")
            key, value = (part and part[: -len(end)] + end[-len(part) :] for part in (key, value))
            records.append(Record(offset, 5 + later, key, value))
    return build_batch(records, keep_offsets=True)


def by_the_general_way(data: bytes) -> list[tuple[bytes | None, bytes | None]] | None:
    try:
        return [(each.key, each.value) for each in iter_payload(data[HEADER_SIZE:], parse_header(data))]
    except CorruptRecord:
        return None


def by_runs(data: bytes) -> list[tuple[bytes | None, bytes | None]] | None:
    runs = record_runs(data, HEADER_SIZE, len(data), parse_header(data).records_count)
    return None if runs is None else [pair for run in runs for pair in zip(*run, strict=True)]


@given(st.lists(alike, max_size=5))
@settings(max_examples=30, deadline=None)
def test_the_same_records(groups: list[tuple[int, bytes | None, bytes | None, int, int]]) -> None:
    data = batch(groups)
    found = by_runs(data)
    # Numbers of three bytes are left to the general way, and nothing else of these.
    is_rare = (
        any(len(part or b"") > 8000 for group in groups for part in group[1:3]) or sum(g[4] for g in groups) > 7000
    )
    assert found == by_the_general_way(data) or (found is None and is_rare)


@given(st.lists(alike, max_size=3), st.data())
@settings(max_examples=30, deadline=None)
def test_damage_is_not_taken_for_records(
    groups: list[tuple[int, bytes | None, bytes | None, int, int]], data: st.DataObject
) -> None:
    damaged = bytearray(batch(groups))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(HEADER_SIZE, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) - 1]))])
    found = by_runs(cut)
    assert found is None or found == by_the_general_way(cut)


def test_few_runs_for_many_records() -> None:
    runs = record_runs(data := batch([(1000, b"a key", b"a value", 0, 0)]), HEADER_SIZE, len(data), 1001)
    assert runs is not None and len(runs) < 10


def test_what_is_rare_is_left_to_the_general_way() -> None:
    for record in (Record(0, 0, None, b"v"), Record(0, 0, b"k", b"v", (("h", b"v"),)), Record(0, 0, b"k", bytes(9000))):
        assert by_runs(build_batch([record])) is None
