"""Records of ``__consumer_offsets`` for consumer groups (KIP-848)."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bytes, Int8, Int32, Int64, Str, UuidField, field, message, struct


@message(api_key=3, versions="0")
class ConsumerGroupMetadataKey:
    group_id: Str = field("0")


@message(api_key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: Int32 = 0
    metadata_hash: Int64 = field(tag=0)


@message(api_key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    group_id: Str = field("0")


@struct
class PartitionMetadata:
    partition: Int32 = 0
    racks: list[Str] = field()


@struct
class TopicMetadata:
    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = field()


@message(api_key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = field()


@message(api_key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class ClassicProtocol:
    name: Str = ""
    metadata: Bytes = b""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field()


@message(api_key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: Str | None = field(nullable="0+")
    rack_id: Str | None = field(nullable="0+")
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = field()
    subscribed_topic_regex: Str | None = field(nullable="0+")
    rebalance_timeout_ms: Int32 = -1
    server_assignor: Str | None = field(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(nullable="0+", tag=0)


@message(api_key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: Str = field("0")


@message(api_key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0, ignorable=True)


@message(api_key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartition:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = field()


@message(api_key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartitions:
    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0)


@message(api_key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()


@message(api_key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: Str = field("0")
    regular_expression: Str = field("0")


@message(api_key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[Str] = field()
    version: Int64 = 0
    timestamp: Int64 = 0
