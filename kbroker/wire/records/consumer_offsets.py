"""Records of ``__consumer_offsets`` for classic groups: committed offsets and group metadata."""

from __future__ import annotations

from kbroker.wire.schema import Bytes, Int32, Int64, Str, UuidField, field, message, struct


@message(api_key=0, versions="0")
class LegacyOffsetCommitKey:
    group: Str = field("0")
    topic: Str = field("0")
    partition: Int32 = field("0")


@message(api_key=0, versions="0")
class LegacyOffsetCommitValue:
    offset: Int64 = field("0")
    metadata: Str = field("0")
    commit_timestamp: Int64 = field("0")


@message(api_key=1, versions="0")
class OffsetCommitKey:
    group: Str = field("0")
    topic: Str = field("0")
    partition: Int32 = field("0")


@message(api_key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: Int64 = 0
    leader_epoch: Int32 = field("3+", ignorable=True, default=-1)
    metadata: Str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = field("1", ignorable=True, default=-1)
    topic_id: UuidField = field("4+", tag=0, ignorable=True)


@message(api_key=2, versions="0")
class GroupMetadataKey:
    group: Str = field("0")


@struct
class MemberMetadata:
    member_id: Str = ""
    group_instance_id: Str | None = field("3+", nullable="3+", ignorable=True, default=None)
    client_id: Str = ""
    client_host: Str = ""
    rebalance_timeout: Int32 = field("1+", ignorable=True, default=-1)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


@message(api_key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: Str = ""
    generation: Int32 = 0
    protocol: Str | None = field(nullable="0+")
    leader: Str | None = field(nullable="0+")
    current_state_timestamp: Int64 = field("2+", ignorable=True, default=-1)
    members: list[MemberMetadata] = field()
