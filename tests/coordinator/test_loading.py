"""Loading of a coordinator: batches at once and records one by one make the same state, and how much work it is."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cores.coordinator.batches import coordinator_batch
from kbroker.cores.coordinator.result import CoordinatorRecord, TransactionalWriter
from kbroker.cores.groups.group_coordinator import GroupCoordinator
from kbroker.cores.groups.records import OffsetAndMetadata, group_metadata_tombstone, offset_commit_record
from kbroker.cores.groups.settings import GroupSettings
from kbroker.node.coordinators.coordinator_loading import replay_chunk
from kbroker.types import ZERO_UUID, TopicPartition, Uuid
from kbroker.wire.batch_header import BatchHeader, parse_header
from kbroker.wire.compression import CompressionType
from kbroker.wire.control_batch import build_end_txn_marker
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup
from kbroker.wire.record_batch import Record, build_batch, iter_records

TOPIC_ID = Uuid(bytes(range(16)))
GROUPS, TOPICS = ("g", "h", "another"), ("t", "u", "a topic")
PARTITION = TopicPartition("__consumer_offsets", 0)


def commit(group: str, topic: str, partition: int, offset: int, kind: str = "plain") -> CoordinatorRecord:
    committed = OffsetAndMetadata(offset, 3, "", 1_000, None, TOPIC_ID)
    if kind == "described":
        committed = committed._replace(metadata="where")
    elif kind == "old":
        committed = committed._replace(topic_id=ZERO_UUID)
    record = offset_commit_record(group, topic, partition, None if kind == "deleted" else committed)
    if kind == "broken" and record.value:
        return record._replace(value=b"\0\4" + bytes(len(record.value) - 2))
    if kind == "newer" and record.value:
        return record._replace(value=b"\0\5" + record.value[2:])
    return record


KINDS = ("plain", "plain", "plain", "plain", "described", "old", "deleted", "broken", "newer")
commits = st.builds(
    commit,
    st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(0, 4), st.integers(0, 9), st.sampled_from(KINDS),
)  # fmt: skip
of_one_request = st.builds(
    lambda group, topic, count, offset: [commit(group, topic, index, offset) for index in range(count)],
    st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(1, 6), st.integers(0, 9),
)  # fmt: skip
steps = st.tuples(
    st.one_of(
        of_one_request,
        st.lists(commits, min_size=1, max_size=4),
        st.sampled_from(GROUPS).map(lambda group: [group_metadata_tombstone(group)]),
        st.booleans(),  # the end of a transaction
    ),
    st.sampled_from([-1, -1, 7, 8]),
    st.booleans(),
)
"""The records of a batch, or a marker; the producer in whose transaction they are; whether some of it is compacted."""


def log_of(parts: list[tuple[Any, int, bool]], codec: CompressionType) -> bytes:
    log = bytearray()
    offset = 0
    for records, producer_id, is_compacted in parts:
        if isinstance(records, bool):
            batch = bytes(
                build_end_txn_marker(
                    producer_id=max(producer_id, 7),
                    producer_epoch=0,
                    commit=records,
                    timestamp_ms=0,
                    coordinator_epoch=0,
                )
            )
        else:
            writer = TransactionalWriter(producer_id, 0) if producer_id >= 0 else TransactionalWriter()
            batch = bytes(coordinator_batch(records, 5, writer, codec))
            if is_compacted:
                header = parse_header(batch)
                kept = [each for each in iter_records(batch) if each.offset != 1]
                batch = _again(kept, header, codec)
        log += offset.to_bytes(8, "big") + batch[8:]
        offset += parse_header(batch).last_offset_delta + 1
    return bytes(log)


def _again(records: list[Record], header: BatchHeader, codec: CompressionType) -> bytes:
    return build_batch(
        records,
        compression=codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=header.is_transactional,
        keep_offsets=True,
        last_offset_delta=header.last_offset_delta,
    )


def loaded(log: bytes) -> GroupCoordinator:
    core = GroupCoordinator(GroupSettings, random.Random(1))
    replay_chunk(core, PARTITION, log, 0, 0)
    return core


def state(core: GroupCoordinator) -> Any:
    fetched = [
        core.fetch_offsets(OffsetFetchRequestGroup(group_id=group, topics=None), {}, require_stable=True)
        for group in GROUPS
    ]
    return sorted(core.groups.classic), fetched


@given(st.lists(steps, max_size=12))
@settings(max_examples=40, deadline=None)
def test_batches_at_once_and_records_one_by_one_are_the_same(parts: list[tuple[Any, int, bool]]) -> None:
    """The records of compressed batches are replayed one by one."""
    for ended in (parts, [*parts, (True, 7, False), (True, 8, False)]):
        expected = state(loaded(log_of(ended, CompressionType.GZIP)))
        assert state(loaded(log_of(ended, CompressionType.NONE))) == expected


def test_a_batch_of_offsets_is_loaded_without_a_call_for_each() -> None:
    batch = bytes(coordinator_batch([commit("g", "t", index, index) for index in range(3_000)], 5))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        core = loaded(batch)
    finally:
        sys.setprofile(before)
    assert calls < 3_000
    fetched = core.fetch_offsets(OffsetFetchRequestGroup(group_id="g", topics=None), {}).topics[0].partitions
    assert [each.committed_offset for each in fetched] == list(range(3_000))


def test_values_of_newer_versions_are_passed_over_and_what_is_beside_them_is_loaded() -> None:
    """A newer release has written them. No group of the partition would have a coordinator without the others."""
    newer_group = CoordinatorRecord(group_metadata_tombstone("h").key, b"\0\5" + bytes(40))
    records = [commit("g", "t", 0, 1), commit("g", "t", 1, 2, "newer"), newer_group, commit("g", "t", 2, 3)]
    for codec in (CompressionType.NONE, CompressionType.GZIP):
        core = loaded(log_of([(records, -1, False), (records[1:2], 7, False)], codec))
        fetched = core.fetch_offsets(OffsetFetchRequestGroup(group_id="g", topics=None), {}).topics[0].partitions
        assert {each.partition_index: each.committed_offset for each in fetched} == {0: 1, 2: 3}
