"""The short ways to write and read committed offsets agree with the codecs of their schemas."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kbroker.cores.groups.records import (
    OffsetAndMetadata,
    OffsetKeys,
    keep_offset,
    keep_offsets,
    offset_commit_record,
    read_key,
    read_offset_commit,
)
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kbroker.wire.records.versioned import decode_versioned, encode_coordinator_key, encode_versioned

names = st.text(max_size=40).filter(lambda text: all(not 0xD800 <= ord(char) < 0xE000 for char in text))
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
topic_ids = st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16).map(Uuid))
offsets = st.builds(
    OffsetAndMetadata,
    offset=int64s,
    leader_epoch=int32s,
    metadata=names,
    commit_timestamp_ms=int64s,
    expire_timestamp_ms=st.one_of(st.none(), st.integers(0, 2**62)),
    topic_id=topic_ids,
)


@given(names, names, int32s)
def test_keys(group: str, topic: str, partition: int) -> None:
    key = offset_commit_record(group, topic, partition, None).key
    assert key == encode_coordinator_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    keys = OffsetKeys()
    assert keys.read(key) == keys.read(key) == (group, topic, partition)
    assert read_key(key) == OffsetCommitKey(group=group, topic=topic, partition=partition)


@given(st.binary(max_size=40))
def test_other_keys_are_left_to_the_schemas(data: bytes) -> None:
    keys = OffsetKeys()
    keys.read(offset_commit_record("g", "t", 1, None).key)
    for key in (data, b"\0\1" + data):
        found = keys.read(key)
        if found is not None:
            again = OffsetCommitKey(group=found[0], topic=found[1], partition=found[2])
            assert encode_coordinator_key(again) == key


@given(offsets)
def test_values(offset: OffsetAndMetadata) -> None:
    value = offset_commit_record("g", "t", 0, offset).value
    assert value is not None
    message, version = decode_versioned(OffsetCommitValue, value)
    assert value == encode_versioned(message, version)
    assert version == (4 if offset.expire_timestamp_ms is None else 1)
    read = read_offset_commit(value, 17)
    # Only version 1 has an expiry, and it has neither epoch nor topic id.
    expected = offset._replace(record_offset=17)
    if version == 1:
        expected = expected._replace(leader_epoch=-1, topic_id=ZERO_UUID)
    assert read == expected


_LOOKS_PLAIN = OffsetAndMetadata(
    1,
    metadata="xxxxxxxx\1\0\20".ljust(41, "x") + "\1xxx",
    commit_timestamp_ms=0x0505050505050505,
    topic_id=Uuid(b"x" * 16),
)
"""A member may choose metadata whose bytes stand where those of a value without metadata would."""


@given(st.lists(offsets, min_size=1, max_size=5))
@example([_LOOKS_PLAIN._replace(metadata=""), _LOOKS_PLAIN])
@example([_LOOKS_PLAIN._replace(metadata="")] * 3)
def test_many_are_kept_as_one_is(together: list[OffsetAndMetadata]) -> None:
    values = [offset_commit_record("g", "t", 0, offset).value or b"" for offset in together]
    each = [keep_offset(value, 7) for value in values]
    kept = keep_offsets(values, 7)
    assert kept == (each if all(isinstance(one, bytes) for one in each) else None)
