"""The quick walks over records, held against the one that decodes everything."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.log import record_walk
from kbroker.log.record_walk import (
    index_keys,
    max_timestamp_delta,
    renumbered,
    select_by_index,
    select_by_key,
    shift_timestamps,
)
from kbroker.wire.batch_header import HEADER_SIZE, parse_header
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.primitives import write_varint
from kbroker.wire.record_batch import Record, assemble, build_batch, iter_records
from tests.with_each import examples

TIME = 1_700_000_000_000
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=2).map(tuple)
keys = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=200)
values = st.none() | st.binary(max_size=5) | st.binary(min_size=100, max_size=20_000)
records = st.builds(Record, st.just(0), st.integers(-(2**40), 2**60), keys, values, headers)
batches = st.lists(records, min_size=1, max_size=80)
PADDING = b"\x91" * 7


def finished(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def are_keyed(data: bytes, position: int, count: int) -> Any:
    return finished(record_walk.are_keyed(data[position:], len(data) - position, count, 0))


def built(content: list[Record], *, gaps: bool = False) -> tuple[bytes, list[Record]]:
    """A batch, and its records with their offsets (of which some are missing with ``gaps``)."""
    numbered = [record._replace(offset=500 + index * (3 if gaps else 1)) for index, record in enumerate(content)]
    data = build_batch(numbered, base_offset=500, keep_offsets=True)
    return data, numbered


@given(batches, st.booleans())
def test_keys_are_indexed(content: list[Record], gaps: bool) -> None:
    data, numbered = built(content, gaps=gaps)
    expected = {
        record.key: record.offset if record.value is not None else ~record.offset
        for record in numbered
        if record.key is not None
    }
    offsets: dict[bytes, int] = {}
    stop = len(PADDING) + len(data)
    regular, latest = index_keys(PADDING + data + PADDING, len(PADDING) + HEADER_SIZE, stop, len(content), 500, offsets)
    assert offsets == expected
    assert regular == (not gaps or len(content) == 1)
    assert latest == numbered[-1].offset
    plain, numbered = built(content, gaps=False)
    assert are_keyed(plain[HEADER_SIZE:], 0, len(content)) == all(record.key is not None for record in numbered)
    if gaps and len(content) > 1:
        assert not are_keyed(data[HEADER_SIZE:], 0, len(content))
    assert finished(renumbered(data[HEADER_SIZE:], len(content), 0)) == plain[HEADER_SIZE:]


@given(batches, st.sets(st.integers(0, 79)), st.booleans())
def test_records_are_selected(content: list[Record], wanted: set[int], tombstones: bool) -> None:
    data, numbered = built(content)
    chosen = sorted(index for index in wanted if index < len(content))
    runs = select_by_index(data, HEADER_SIZE, chosen)
    assert rebuilt(data, runs, len(chosen)) == [numbered[index] for index in chosen]
    assert len(runs) <= len(chosen)
    if chosen:
        base = parse_header(data).base_timestamp
        assert base + max_timestamp_delta(data, runs) == max(numbered[index].timestamp for index in chosen)

    offsets = {record.key: record.offset for record in numbered if record.key is not None and record.offset % 3}
    runs, kept, found_tombstone = select_by_key(data, HEADER_SIZE, len(data), len(content), 500, offsets, tombstones)
    expected = [
        record
        for record in numbered
        if record.key is not None
        and record.offset >= offsets.get(record.key, -1)
        and (tombstones or record.value is not None)
    ]
    assert kept == len(expected)
    assert rebuilt(data, runs, kept) == expected
    assert found_tombstone == any(record.value is None for record in expected)


@given(batches, st.integers(-(2**61), 2**61))
def test_timestamps_are_shifted(content: list[Record], base: int) -> None:
    data, numbered = built(content)
    header = parse_header(data)
    shifted = shift_timestamps(data, [(HEADER_SIZE, len(data))], header.base_timestamp - base)
    again = assemble(header._replace(base_timestamp=base), shifted)
    assert list(iter_records(again)) == numbered


def rebuilt(data: bytes, runs: list[tuple[int, int]], count: int) -> list[Record]:
    header = parse_header(data)
    payload = b"".join(data[start:end] for start, end in runs)
    return list(iter_records(assemble(header._replace(records_count=count), payload)))


@settings(max_examples=examples(300))
@given(st.binary(max_size=300), st.integers(1, 40))
def test_garbage_is_refused_or_walked_but_never_breaks(data: bytes, count: int) -> None:
    for walk in (
        lambda: index_keys(data, 0, len(data), count, 0, {}),
        lambda: select_by_key(data, 0, len(data), count, 0, {}, True),
        lambda: are_keyed(data, 0, count),
        lambda: select_by_index(data, 0, list(range(count))),
    ):
        try:
            walk()
        except CorruptRecord:
            pass


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_count_or_length_is_noticed(change: int) -> None:
    data, numbered = built([Record(0, TIME, b"k%d" % index, b"v") for index in range(5)])
    with pytest.raises(CorruptRecord):
        index_keys(data, HEADER_SIZE, len(data), len(numbered) + change, 500, {})
    with pytest.raises(CorruptRecord):
        select_by_key(data, HEADER_SIZE, len(data) + change, len(numbered), 500, {}, True)
    with pytest.raises(CorruptRecord):
        are_keyed(data[HEADER_SIZE:] + b"\0", 0, len(numbered))


@given(batches, st.integers(-(2**41), 2**61), st.integers(0, 80))
def test_the_first_late_record_is_found(content: list[Record], timestamp: int, number: int) -> None:
    data, numbered = built(content)
    base = parse_header(data).base_timestamp
    payload = data[HEADER_SIZE:]
    expected = next(
        (
            (record.timestamp - base, record.offset - 500)
            for record in numbered[number:]
            if record.timestamp >= timestamp
        ),
        None,
    )
    assert finished(record_walk.first_late(payload, len(payload), len(content), timestamp - base, number)) == expected


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_number_without_end_is_refused_at_once(size: int) -> None:
    """A client may have stored it: with all its bytes, two megabytes of it would take minutes."""
    body = bytearray()
    write_varint(body, size + 6)
    data = bytes(body) + b"\0" + b"\xff" * size + b"\x01\0\x01\x01\0"
    with pytest.raises(CorruptRecord, match="more than 10 bytes"):
        finished(record_walk.first_late(data, len(data), 1, 0, 0))
