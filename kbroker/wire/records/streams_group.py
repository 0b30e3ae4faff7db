"""Records of ``__consumer_offsets`` for streams groups (KIP-1071)."""

from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Int64, Str, UInt16, field, message, struct


@message(api_key=17, versions="0")
class StreamsGroupMetadataKey:
    group_id: Str = field("0")


@struct
class LastAssignmentConfig:
    key: Str = ""
    value: Str = ""


@message(api_key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(nullable="0+", tag=1)
    stored_description_topology_epoch: Int32 = field(tag=2, default=-1)
    failed_description_topology_epoch: Int32 = field(tag=3, default=-1)


@message(api_key=19, versions="0")
class StreamsGroupMemberMetadataKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class Endpoint:
    host: Str = ""
    port: UInt16 = 0


@struct
class KeyValue:
    key: Str = ""
    value: Str = ""


@message(api_key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: Str | None = field(nullable="0+")
    rack_id: Str | None = field(nullable="0+")
    client_id: Str = ""
    client_host: Str = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: Str = ""
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] = field()


@message(api_key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: Str = field("0")


@message(api_key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0, ignorable=True)


@message(api_key=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class TaskIds:
    subtopology_id: Str = ""
    partitions: list[Int32] = field()


@message(api_key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


@message(api_key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: Str = field("0")
    member_id: Str = field("0")


@struct
class StreamsGroupCurrentMemberAssignmentValueTaskIds:
    subtopology_id: Str = ""
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0)


@message(api_key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = field()


@message(api_key=23, versions="0")
class StreamsGroupTopologyKey:
    group_id: Str = field("0")


@struct
class TopicConfig:
    key: Str = ""
    value: Str = ""


@struct
class TopicInfo:
    name: Str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[TopicConfig] = field()


@struct
class CopartitionGroup:
    source_topics: list[Int16] = field()
    source_topic_regex: list[Int16] = field()
    repartition_source_topics: list[Int16] = field()


@struct
class Subtopology:
    subtopology_id: Str = ""
    source_topics: list[Str] = field()
    source_topic_regex: list[Str] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[Str] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@message(api_key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = field()
