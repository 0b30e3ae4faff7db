"""Records of ``__consumer_offsets`` for share groups (KIP-932)."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int8, Int32, Int64, Str, UuidField, field, message, struct


@message(api_key=10, versions="0")
class ShareGroupMemberMetadataKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@message(api_key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: Str | None = field(nullable="0+")
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = field()


@message(api_key=11, versions="0")
class ShareGroupMetadataKey:
    group_id: Str = field("0")


@message(api_key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


@message(api_key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    group_id: Str = field("0")


@message(api_key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0, ignorable=True)


@message(api_key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartition:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = field()


@message(api_key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartitions:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = field()


@message(api_key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    group_id: Str = field("0")


@struct
class TopicPartitionsInfo:
    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""
    partitions: list[Int32] = field()


@struct
class TopicInfo:
    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""


@message(api_key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: list[TopicPartitionsInfo] = field()
    initialized_topics: list[TopicPartitionsInfo] = field()
    deleting_topics: list[TopicInfo] = field()
