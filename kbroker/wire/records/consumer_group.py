"""Records of ``__consumer_offsets`` for consumer groups (KIP-848)."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Bytes, Int8, Int32, Int64, Str, UuidField, field, message, struct


@message(api_key=3, versions="0")
class ConsumerGroupMetadataKey:
    """Key of record type 3."""

    group_id: Str = field("0")


@message(api_key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """Value of record type 3."""

    epoch: Int32 = 0
    metadata_hash: Int64 = field(tag=0)


@message(api_key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Key of record type 4."""

    group_id: Str = field("0")


@struct
class PartitionMetadata:
    """Part of ConsumerGroupPartitionMetadataValue."""

    partition: Int32 = 0
    racks: list[Str] = field()


@struct
class TopicMetadata:
    """Part of ConsumerGroupPartitionMetadataValue."""

    topic_id: UuidField = ZERO_UUID
    topic_name: Str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = field()


@message(api_key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """Value of record type 4."""

    topics: list[TopicMetadata] = field()


@message(api_key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    """Key of record type 5."""

    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class ClassicProtocol:
    """Part of ConsumerGroupMemberMetadataValue."""

    name: Str = ""
    metadata: Bytes = b""


@struct
class ClassicMemberMetadata:
    """Part of ConsumerGroupMemberMetadataValue."""

    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field()


@message(api_key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """Value of record type 5."""

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
    """Key of record type 6."""

    group_id: Str = field("0")


@message(api_key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """Value of record type 6."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0, ignorable=True)


@message(api_key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of record type 7."""

    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartition:
    """Part of ConsumerGroupTargetAssignmentMemberValue."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()


@message(api_key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """Value of record type 7."""

    topic_partitions: list[TopicPartition] = field()


@message(api_key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of record type 8."""

    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TopicPartitions:
    """Part of ConsumerGroupCurrentMemberAssignmentValue."""

    topic_id: UuidField = ZERO_UUID
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0)


@message(api_key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """Value of record type 8."""

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()


@message(api_key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    """Key of record type 16."""

    group_id: Str = field("0")
    regular_expression: Str = field("0")


@message(api_key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """Value of record type 16."""

    topics: list[Str] = field()
    version: Int64 = 0
    timestamp: Int64 = 0
