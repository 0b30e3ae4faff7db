"""The short way to a coordinator's batch agrees with the general one, and no other record is loaded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.coordinator.batches import coordinator_batch, coordinator_batches
from kbroker.cores.coordinator.result import NO_TRANSACTION, CoordinatorRecord, TransactionalWriter
from kbroker.node.coordinators.coordinator_loading import replay_chunk
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.compression import CompressionType, DecompressesTooLarge
from kbroker.wire.record_batch import Record, build_batch, iter_records
from tests.log.large_batches import large_batch

contents = st.one_of(st.binary(max_size=40), st.integers(0, 20_000).map(bytes))
records = st.builds(CoordinatorRecord, contents, st.one_of(st.none(), contents))
writers = st.one_of(
    st.just(NO_TRANSACTION), st.builds(TransactionalWriter, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
)


def by_the_general_way(
    steps: list[CoordinatorRecord],
    now_ms: int,
    writer: TransactionalWriter,
    codec: CompressionType = CompressionType.NONE,
) -> bytes:
    return build_batch(
        [Record(0, now_ms, key, value) for key, value in steps],
        compression=codec,
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        base_sequence=0,
        is_transactional=writer is not NO_TRANSACTION,
    )


@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 2**62), writers, st.sampled_from(CompressionType))
def test_same_bytes(
    steps: list[CoordinatorRecord], now_ms: int, writer: TransactionalWriter, codec: CompressionType
) -> None:
    batch = coordinator_batch(steps, now_ms, writer, codec)
    assert batch == by_the_general_way(steps, now_ms, writer, codec)
    assert sum(1 for _ in walk_headers(batch)) == 1


def test_many_records() -> None:
    steps = [CoordinatorRecord(b"key %d" % number, b"") for number in range(3_000)]
    assert coordinator_batch(steps, 7) == by_the_general_way(steps, 7, NO_TRANSACTION)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_large_record_makes_no_batch_that_is_empty(place: int) -> None:
    steps = [CoordinatorRecord(b"small", b"1"), CoordinatorRecord(b"small", b"2")]
    steps.insert(place, CoordinatorRecord(b"large", bytes(1_000_000)))
    headers = [header for batch in coordinator_batches(steps, 7) for _, header in walk_headers(batch)]
    assert all(header.records_count for header in headers)
    assert sum(header.records_count for header in headers) == len(steps)
    assert list(coordinator_batches([], 7)) == []


def test_a_record_that_no_coordinator_writes_is_not_unpacked() -> None:
    """Clients who may write to the topic could take the memory of each node that leads its partition."""
    large = large_batch([Record(0, 0, b"k", bytes(65 << 20))], CompressionType.ZSTD)
    core = SimpleNamespace(replay=lambda *_, **__: pytest.fail("it is replayed"))
    with pytest.raises(DecompressesTooLarge):
        replay_chunk(core, TopicPartition("__consumer_offsets", 0), bytes(large), 0, 0)


@given(st.lists(records, max_size=20), st.integers(100, 3_000))
def test_batches_are_as_large_as_the_topic_takes(steps: list[CoordinatorRecord], limit: int) -> None:
    batches = list(coordinator_batches(steps, 7, max_message_bytes=limit))
    headers = [header for batch in batches for _, header in walk_headers(batch)]
    assert all(header.size <= limit or header.records_count == 1 for header in headers)
    assert [(each.key, each.value) for batch in batches for each in iter_records(batch)] == steps
