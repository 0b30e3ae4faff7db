"""The batches of a producer that are not on their way, by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.errors import ClientError
from kbroker.client.pending_batches import Batch, PendingBatches, Remainder, Unanswered
from kbroker.wire.record_batch import Record


def record(value: bytes = b"v", key: bytes | None = None) -> Record:
    return Record(0, 1, key, value, ())


def sources(pending: PendingBatches) -> list[int]:
    """All that is here, as its rest; the order of a partition's records is that of their sources."""
    return list(pending.remainder([]).unsent)


@given(
    st.integers(1, 3),
    st.integers(50, 200),
    st.lists(st.tuples(st.sampled_from(["add", "send", "fail", "split"]), st.integers(0, 2)), max_size=60),
)
def test_no_record_is_lost_and_each_partition_keeps_its_order(
    count: int, batch_bytes: int, steps: list[tuple[str, int]]
) -> None:
    pending = PendingBatches("t", range(count), batch_bytes, None)
    sent: dict[int, list[int]] = {partition: [] for partition in range(count)}
    added: dict[int, list[int]] = {partition: [] for partition in range(count)}
    for number, (step, choice) in enumerate(steps):
        if step == "add":
            added[choice % count].append(number)
            pending.add(record(b"v" * choice), number, choice % count)
            continue
        pending.finish()
        batches = pending.first_batches()
        assert all(pending.is_next(batch) for batch in batches)
        pending.take(batches)
        if step == "fail":
            pending.put_back(batches)
        for batch in batches:
            if step == "send":
                sent[batch.partition] += batch.sources
            elif step == "split":
                middle = len(batch.records) // 2
                for part in (range(middle, len(batch.records)), range(middle)):
                    if part:
                        pending.put_part_back(batch, part)
    left = sources(pending)
    assert pending.record_count == len(left)
    for partition, numbers in added.items():
        assert sent[partition] + [number for number in left if number in numbers] == numbers


def test_records_without_a_key_fill_a_batch_before_the_next_partition_has_its_turn() -> None:
    pending = PendingBatches("t", [0, 1], 100, None)
    assert [pending.add(record(b"v" * 40), number, None) for number in range(5)] == [False, False, True, True, True]
    pending.finish()
    assert sorted(batch.sources for batch in pending.first_batches()) == [[0], [1]]


def test_a_batch_without_an_answer_goes_out_first_and_as_it_was() -> None:
    rest = Remainder({0: Unanswered([7, 8], 5, 1, 30)}, [9])
    pending = PendingBatches("t", [0, 1], 1000, rest)
    pending.add(record(), 20, 0)
    pending.add(record(), 21, 1)
    pending.finish()
    assert [batch.sources for batch in pending.first_batches()] == [[21]]
    pending.add(record(), 7, None)
    with pytest.raises(ClientError, match="1 records that may have been stored did not come again"):
        pending.finish_unanswered()
    assert pending.remainder([]) == Remainder({0: Unanswered([7, 8], 5, 1, 30)}, [20, 21])
    pending.add(record(), 8, None)
    pending.finish_unanswered()
    first = pending.first_batches()[0]
    assert (first.sources, first.stamp) == ([7, 8], (5, 1, 30))


def test_what_is_on_its_way_is_part_of_the_rest() -> None:
    pending = PendingBatches("t", [0], 1000, None)
    under_way = [Batch(0, [record()], [3], 25, stamp=(5, 1, 0)), Batch(0, [record()], [4], 25)]
    assert pending.remainder(under_way) == Remainder({0: Unanswered([3], 5, 1, 0)}, [4])


def test_a_rest_for_a_partition_that_is_gone_is_refused() -> None:
    with pytest.raises(ClientError, match="topic t has no partition 2 any more"):
        PendingBatches("t", [0, 1], 1000, Remainder({2: Unanswered([1])}))
