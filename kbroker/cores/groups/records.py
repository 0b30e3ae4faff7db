"""Records of ``__consumer_offsets``: Kafka's keys and values, each behind its type or version number.

A key opens with the record's type as int16, a value with its version as int16
(Kafka's ``GroupCoordinatorRecordHelpers`` and ``GroupCoordinatorRecordSerde``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kbroker.cores.coordinator.result import CoordinatorRecord
from kbroker.cores.groups.consumer_group_records import RECORD_TYPES as CONSUMER_GROUP_RECORD_TYPES
from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kbroker.wire.records.versioned import decode_group_key, decode_versioned

if TYPE_CHECKING:
    from kbroker.cores.groups.classic_group import ClassicGroup

_PREFIX = struct.Struct(">h")
_INT = struct.Struct(">i")
_OFFSET_COMMIT_PREFIX = b"\0\1"
_OFFSET_COMMIT_TYPES = (0, 1)
"""Brokers before 0.8.2's second format wrote type 0; same fields."""
_GROUP_METADATA_TYPE = 2
STREAMS_GROUP_RECORD_TYPES = frozenset({17, 19, 20, 21, 22, 23})
"""The types of KIP-1071, which `kbroker.cores.groups.streams.records` applies."""
SHARE_GROUP_RECORD_TYPES = frozenset({10, 11, 12, 13, 14, 15})
"""The types of KIP-932, which `kbroker.cores.groups.share.records` applies."""
_HEARTBEAT_GROUP_RECORD_TYPES = CONSUMER_GROUP_RECORD_TYPES | STREAMS_GROUP_RECORD_TYPES | SHARE_GROUP_RECORD_TYPES
_OFFSET_COMMIT_VERSION = 4
_OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
_GROUP_METADATA_VERSION = 3

_PLAIN_OFFSET = struct.Struct(">hqiBqBBB16s")
"""The value of nearly all offsets: version 4, without metadata, with the topic's id. Its fields: version (4), offset,
leader epoch, length of the metadata plus one (1), commit time, tags (1), tag (0), its size (16), id."""
_pack_plain_offset = _PLAIN_OFFSET.pack
_PLAIN_BYTES = ((0, 0), (1, 4), (14, 1), (23, 1), (24, 0), (25, 16))
"""Where all such values have the same bytes, and which."""
_KEPT_OFFSET = struct.Struct(">2xqixq3x16sq")
_pack_record_offset = struct.Struct(">q").pack
_MOST_NAMES = 4_000
_LONGEST_KEPT_NAMES = 255
"""Longer names of group and topic are encoded each time: clients choose them, and the cache must stay small."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset. Times are ms since the epoch; the expiry only where a client set one."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1
    """Its record's offset in the partition: shows which of two commits was the last, also after compaction."""


def offset_commit_record(
    group_id: str, topic: str, partition: int, committed: OffsetAndMetadata | None
) -> CoordinatorRecord:
    """The record of a committed offset; a tombstone for None."""
    key = offset_key_prefix(group_id, topic) + _INT.pack(partition)
    if committed is None:
        return CoordinatorRecord(key, None)
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id, _ = committed
    value = offset_value(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)
    return CoordinatorRecord(key, value)


def offset_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int | None,
    topic_id: Uuid,
) -> bytes:
    """The value of a committed offset; the fields of `OffsetAndMetadata`."""
    if expire_timestamp_ms is None and not metadata and topic_id != ZERO_UUID:
        # Written out: each commit makes one for every partition.
        return _pack_plain_offset(4, offset, leader_epoch, 1, commit_timestamp_ms, 1, 0, 16, topic_id)
    # Only version 1 can hold an expiry; the versions after it leave that to the retention config.
    version = _OFFSET_COMMIT_VERSION if expire_timestamp_ms is None else _OFFSET_COMMIT_VERSION_WITH_EXPIRY
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=-1 if expire_timestamp_ms is None else expire_timestamp_ms,
        topic_id=topic_id,
    )
    return _PREFIX.pack(version) + encode(value, version)


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """An `OffsetCommitKey` as it is encoded, without the partition, which is its last four bytes."""
    if len(group_id) + len(topic) > _LONGEST_KEPT_NAMES:
        return _encode_names(group_id, topic)
    return _kept_names(group_id, topic)


def _encode_names(group_id: str, topic: str) -> bytes:
    group_bytes, topic_bytes = group_id.encode(), topic.encode()
    return b"".join(
        (
            _OFFSET_COMMIT_PREFIX,
            _PREFIX.pack(len(group_bytes)),
            group_bytes,
            _PREFIX.pack(len(topic_bytes)),
            topic_bytes,
        )
    )


_kept_names = lru_cache(maxsize=_MOST_NAMES)(_encode_names)


def group_metadata_record(group: ClassicGroup, assignment: dict[str, bytes], now_ms: int) -> CoordinatorRecord:
    """The record of a classic group with these assignments."""
    protocol = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=now_ms if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol or ""),
                assignment=assignment[member.member_id],
            )
            for member in (group.members.values() if assignment else ())
        ],
    )
    version = _GROUP_METADATA_VERSION
    return CoordinatorRecord(_group_key(group.group_id), _PREFIX.pack(version) + encode(value, version))


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that deletes a classic group."""
    return CoordinatorRecord(_group_key(group_id), None)


def _group_key(group_id: str) -> bytes:
    return _PREFIX.pack(_GROUP_METADATA_TYPE) + encode(GroupMetadataKey(group=group_id), 0)


def read_key(key: bytes) -> Any:
    """Decode a key; None for a type that kbroker does not know. `WireError` for a broken one."""
    kind = _prefix(key)
    if kind in _OFFSET_COMMIT_TYPES:
        return decode(OffsetCommitKey, 0, key, _PREFIX.size)[0]
    if kind == _GROUP_METADATA_TYPE:
        return decode(GroupMetadataKey, 0, key, _PREFIX.size)[0]
    return decode_group_key(key) if kind in _HEARTBEAT_GROUP_RECORD_TYPES else None


def is_of_streams_group(key: bytes) -> bool:
    """Whether the key is that of a record of a streams group. `WireError` for a broken one."""
    return _prefix(key) in STREAMS_GROUP_RECORD_TYPES


def is_of_share_group(key: bytes) -> bool:
    """Whether the key is that of a record of a share group. `WireError` for a broken one."""
    return _prefix(key) in SHARE_GROUP_RECORD_TYPES


class OffsetKeys:
    """Reads the keys of committed offsets by the shortest way: nearly all of a partition's records are such.

    Keys of the same group and topic differ in their last bytes only, so the names are kept by the bytes before.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}

    def read(self, key: bytes) -> tuple[str, str, int] | None:
        """Group, topic and partition; None for any other key, and for a broken one."""
        names = self._names.get(key[:-4])
        if names is None:
            if key[:2] != _OFFSET_COMMIT_PREFIX:
                return None
            names = _read_names(key)
            if names is None:
                return None
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            if len(key) <= _LONGEST_KEPT_NAMES:
                self._names[key[:-4]] = names
        return names[0], names[1], _INT.unpack_from(key, len(key) - 4)[0]


def partitions_of(keys: Sequence[bytes]) -> Sequence[int] | None:
    """Returns the partitions of such keys of one length; None unless group and topic are the same in all."""
    names = keys[0][:-4]
    if [key[:-4] for key in keys].count(names) != len(keys):
        return None
    return struct.unpack(f">{len(keys)}i", b"".join([key[-4:] for key in keys]))


def _read_names(key: bytes) -> tuple[str, str] | None:
    try:
        topic_at = 4 + _PREFIX.unpack_from(key, 2)[0]
        (topic_length,) = _PREFIX.unpack_from(key, topic_at)
        partition_at = topic_at + 2 + topic_length
        if topic_at < 4 or topic_length < 0 or partition_at + 4 != len(key):
            return None
        return key[4:topic_at].decode(), key[topic_at + 2 : partition_at].decode()
    except (struct.error, UnicodeDecodeError):
        return None


KeptOffset = bytes | OffsetAndMetadata
"""A committed offset in memory. Nearly all are the bytes of their record's value and then its offset: a third of the
memory, and nothing to decode where the next commit comes before a question."""


def keep_offset(value: bytes, record_offset: int) -> KeptOffset:
    """Returns the value of an offset's record, which stands at ``record_offset``, as it is kept."""
    if _is_plain(value):
        return value + _pack_record_offset(record_offset)
    return read_offset_commit(value, record_offset)


def _is_plain(value: bytes) -> bool:
    return len(value) == _PLAIN_OFFSET.size and value[:2] + value[14:15] + value[23:26] == b"\0\4\1\1\0\20"


def keep_offsets(values: Sequence[bytes], record_offset: int) -> list[bytes] | None:
    """Returns `keep_offset` of many values; None unless they can all stay encoded."""
    if not _is_plain(values[0]):
        return None
    count, size = len(values), _PLAIN_OFFSET.size
    if count > 1:
        together = b"".join(values)
        if len(together) != count * size or any(together[at::size].count(byte) != count for at, byte in _PLAIN_BYTES):
            return None
    behind = _pack_record_offset(record_offset)
    return [value + behind for value in values]


def read_kept_offset(kept: KeptOffset) -> OffsetAndMetadata:
    """Decode a committed offset, if it is not decoded."""
    if isinstance(kept, OffsetAndMetadata):
        return kept
    offset, leader_epoch, commit_ms, topic_id, record_offset = _KEPT_OFFSET.unpack(kept)
    return OffsetAndMetadata(offset, leader_epoch, "", commit_ms, None, topic_id, record_offset)


def read_offset_commit(value: bytes, record_offset: int = -1) -> OffsetAndMetadata:
    """Decode the value of an offset's record, which stands at ``record_offset``. `WireError` if it cannot be read."""
    record, _ = decode_versioned(OffsetCommitValue, value)
    return OffsetAndMetadata(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp_ms=record.commit_timestamp,
        expire_timestamp_ms=None if record.expire_timestamp == -1 else record.expire_timestamp,
        topic_id=Uuid(record.topic_id),
        record_offset=record_offset,
    )


def read_group_metadata(value: bytes) -> GroupMetadataValue:
    """Decode the value of a classic group's record. `WireError` if it cannot be read."""
    return decode_versioned(GroupMetadataValue, value)[0]


def _prefix(data: bytes) -> int:
    if len(data) < _PREFIX.size:
        raise WireError("a coordinator record is shorter than its type number")
    (number,) = _PREFIX.unpack_from(data)
    return int(number)
