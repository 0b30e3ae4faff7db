"""Messages with two bytes of version in front.

Keys and values of the coordinators' records, the consumer protocol, and the values of transaction markers.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Final, TypeVar

from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.primitives import Buffer
from kbroker.wire.schema import struct_spec

M = TypeVar("M")

_VERSION: Final = struct.Struct(">h")

_GROUP_MODULES: Final = {
    0: ("consumer_offsets", "LegacyOffsetCommit"),
    1: ("consumer_offsets", "OffsetCommit"),
    2: ("consumer_offsets", "GroupMetadata"),
    3: ("consumer_group", "ConsumerGroupMetadata"),
    4: ("consumer_group", "ConsumerGroupPartitionMetadata"),
    5: ("consumer_group", "ConsumerGroupMemberMetadata"),
    6: ("consumer_group", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("consumer_group", "ConsumerGroupTargetAssignmentMember"),
    8: ("consumer_group", "ConsumerGroupCurrentMemberAssignment"),
    10: ("share_group", "ShareGroupMemberMetadata"),
    11: ("share_group", "ShareGroupMetadata"),
    12: ("share_group", "ShareGroupTargetAssignmentMetadata"),
    13: ("share_group", "ShareGroupTargetAssignmentMember"),
    14: ("share_group", "ShareGroupCurrentMemberAssignment"),
    15: ("share_group", "ShareGroupStatePartitionMetadata"),
    16: ("consumer_group", "ConsumerGroupRegularExpression"),
    17: ("streams_group", "StreamsGroupMetadata"),
    19: ("streams_group", "StreamsGroupMemberMetadata"),
    20: ("streams_group", "StreamsGroupTargetAssignmentMetadata"),
    21: ("streams_group", "StreamsGroupTargetAssignmentMember"),
    22: ("streams_group", "StreamsGroupCurrentMemberAssignment"),
    23: ("streams_group", "StreamsGroupTopology"),
}
"""Record types of ``__consumer_offsets``: module and stem of the class names."""

GROUP_RECORD_TYPES: Final = frozenset(_GROUP_MODULES)
"""All record types of ``__consumer_offsets``."""


def encode_versioned(message: Any, version: int) -> bytes:
    """Two bytes of version, then the message."""
    return _VERSION.pack(version) + encode(message, version)


def decode_versioned(cls: type[M], buffer: Buffer, *, newer_as_newest: bool = False) -> tuple[M, int]:
    """``(message, version)``. Bytes left over are tolerated, as in Kafka.

    ``newer_as_newest``: read a version newer than any known one as the newest (the rule of the consumer
    protocol and of transaction markers, whose versions only add fields at the end). ``WireError`` otherwise.
    """
    version = read_version(buffer)
    versions = struct_spec(cls).versions
    if newer_as_newest and version > versions.highest:
        version = versions.highest
    if version not in versions:
        raise WireError(f"{cls.__name__} of unknown version {version}")
    message, _ = decode(cls, version, buffer, 2)
    return message, version


def read_version(buffer: Buffer) -> int:
    """The two bytes in front: a version, or a record type if this is a coordinator's key."""
    try:
        version: int = _VERSION.unpack_from(buffer)[0]
    except struct.error:
        raise WireError("no room for a version") from None
    return version


def encode_coordinator_key(key: Any) -> bytes:
    """The key of a record of ``__consumer_offsets`` or ``__transaction_state``.

    What stands in front is the record's type; the schemas of keys have version 0 only.
    """
    record_type = struct_spec(type(key)).api_key
    if record_type is None:
        raise TypeError(f"{type(key).__name__} is not the key of a record")
    return _VERSION.pack(record_type) + encode(key, 0)


def group_record_classes(record_type: int) -> tuple[type[Any], type[Any]]:
    """Classes of key and value of a record type of ``__consumer_offsets``; ``WireError`` if it is unknown."""
    try:
        module_name, stem = _GROUP_MODULES[record_type]
    except KeyError:
        raise WireError(f"unknown record type {record_type} in __consumer_offsets") from None
    module = importlib.import_module(f"kbroker.wire.records.{module_name}")
    return getattr(module, f"{stem}Key"), getattr(module, f"{stem}Value")


def decode_group_key(buffer: Buffer) -> Any:
    """The key of a record of ``__consumer_offsets``; ``WireError`` if its type is unknown."""
    key_class, _ = group_record_classes(read_version(buffer))
    return decode(key_class, 0, buffer, 2)[0]
