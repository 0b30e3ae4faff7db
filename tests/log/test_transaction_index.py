"""``.txnindex``: aborted transactions of a segment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.log.fake_disk import FakeDisk
from kbroker.log.producer_state import CompletedTxn
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.log.segments.transaction_index import AbortedTxn, TransactionIndex, collect_aborted_txns

PATH = "/data/00000000000000000100.txnindex"
# Markers at 110, 113, 116 and 130; the last transaction was open during all the others.
ABORTED = [
    AbortedTxn(0, 100, 110, 40),
    AbortedTxn(1, 105, 113, 40),
    AbortedTxn(2, 112, 116, 40),
    AbortedTxn(3, 40, 130, 131),
]
SHORT = [AbortedTxn(0, 100, 110, 105), AbortedTxn(1, 105, 113, 112), AbortedTxn(2, 112, 116, 117)]


def make_index(entries: list[AbortedTxn] | None = None) -> tuple[FakeDisk, TransactionIndex]:
    disk = FakeDisk()
    disk.make_dirs("/data")
    index = TransactionIndex(100, PATH, disk)
    for entry in ABORTED if entries is None else entries:
        index.append(entry)
    return disk, index


def test_bytes_are_apache_kafkas() -> None:
    disk, _ = make_index([AbortedTxn.of(CompletedTxn(1, 2, 3, True), 4)])
    assert disk.read_bytes(PATH).hex() == ("00000000000000000001000000000000000200000000000000030000000000000004")


def test_no_file_without_entries() -> None:
    disk, index = make_index([])
    assert (len(index), list(index), index.last_offset) == (0, [], None)
    assert index.collect(0, 10**9) == ([], False)
    assert not index.truncate_to(0)
    index.reset()
    index.sanity_check()
    index.flush()
    index.delete()
    assert not disk.exists(PATH)


def test_entries_are_read_again() -> None:
    disk, index = make_index()
    again = TransactionIndex(100, PATH, disk)
    assert list(again) == list(index) == ABORTED
    assert (len(again), again.last_offset) == (4, 130)
    again.sanity_check()
    again.flush()


def test_markers_come_in_order() -> None:
    disk, index = make_index()
    for last_offset in (130, 129):
        with pytest.raises(ValueError, match="does not come after"):
            index.append(AbortedTxn(9, 120, last_offset, 131))
    with pytest.raises(ValueError, match="does not come after"):
        TransactionIndex(100, PATH, disk).append(AbortedTxn(9, 120, 130, 131))


def test_collect() -> None:
    _, index = make_index(SHORT)
    assert index.collect(0, 100) == ([], True)
    assert index.collect(0, 101) == (SHORT[:1], True)
    assert index.collect(100, 106) == (SHORT[:2], True)
    assert index.collect(111, 112) == (SHORT[1:2], True)
    assert index.collect(100, 117) == (SHORT, True)
    assert index.collect(114, 200) == (SHORT[2:], False)
    assert index.collect(117, 200) == ([], False)


def test_collect_over_segments_stops_when_it_knows_all() -> None:
    read: list[int] = []

    def indexes(entries: list[AbortedTxn]) -> Iterator[TransactionIndex]:
        for number, part in enumerate((entries[:2], entries[2:])):
            read.append(number)
            yield make_index(part)[1]

    assert collect_aborted_txns(indexes(ABORTED), 100, 200) == ABORTED
    assert read == [0, 1]
    read.clear()
    assert collect_aborted_txns(indexes(SHORT), 100, 106) == SHORT[:2]
    assert read == [0]


def test_truncate() -> None:
    for offset, kept in [(0, 0), (110, 0), (111, 1), (113, 1), (130, 3), (131, 4)]:
        disk, index = make_index()
        assert index.truncate_to(offset) is (kept < 4)
        assert list(index) == ABORTED[:kept]
        assert list(TransactionIndex(100, PATH, disk)) == ABORTED[:kept]
        index.append(AbortedTxn(7, 120, 140, 141))
        assert len(TransactionIndex(100, PATH, disk)) == kept + 1


def test_reset_and_delete() -> None:
    disk, index = make_index()
    index.reset()
    assert len(index) == 0 and disk.size(PATH) == 0
    index.append(ABORTED[0])
    index.delete()
    assert not disk.exists(PATH) and len(index) == 0


def test_torn_entry_is_overwritten() -> None:
    disk, _ = make_index()
    whole = disk.read_bytes(PATH)
    for cut in range(1, 34):
        disk.write_bytes(PATH, whole[:-cut])
        index = TransactionIndex(100, PATH, disk)
        assert list(index) == ABORTED[:3]
        index.append(ABORTED[3])
        assert list(TransactionIndex(100, PATH, disk)) == ABORTED


def test_sanity_check() -> None:
    _, below = make_index([AbortedTxn(0, 10, 99, 100)])
    with pytest.raises(CorruptIndex, match="not beyond"):
        below.sanity_check()
    _, backwards = make_index([AbortedTxn(0, 150, 140, 151)])
    with pytest.raises(CorruptIndex, match="ends before"):
        backwards.sanity_check()
    disk, _ = make_index()
    disk.flip_bit(PATH, 15)
    with pytest.raises(CorruptIndex, match="version 1"):
        TransactionIndex(100, PATH, disk).sanity_check()


@given(st.integers(90, 140), st.integers(0, 60))
def test_collect_finds_each_overlapping_one(fetch_offset: int, length: int) -> None:
    _, index = make_index()
    upper = fetch_offset + length
    found, _ = index.collect(fetch_offset, upper)
    assert found == [t for t in ABORTED if t.last_offset >= fetch_offset and t.first_offset < upper]
