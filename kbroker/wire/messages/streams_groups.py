from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Str, UInt16, field, message, struct


@struct
class KeyValue:
    key: Str = ""
    value: Str = ""


@struct
class TopicInfo:
    name: Str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = field()


@struct
class CopartitionGroup:
    source_topics: list[Int16] = field()
    source_topic_regex: list[Int16] = field()
    repartition_source_topics: list[Int16] = field()


@struct
class HeartbeatSubtopology:
    subtopology_id: Str = ""
    source_topics: list[Str] = field()
    source_topic_regex: list[Str] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[Str] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@struct
class HeartbeatTopology:
    epoch: Int32 = 0
    subtopologies: list[HeartbeatSubtopology] = field()


@struct
class TaskIds:
    subtopology_id: Str = ""
    partitions: list[Int32] = field()


@struct
class Endpoint:
    host: Str = ""
    port: UInt16 = 0


@struct
class TaskOffset:
    subtopology_id: Str = ""
    partition: Int32 = 0
    offset: Int64 = 0


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest(Request["StreamsGroupHeartbeatResponse"]):
    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: Str | None = field(nullable="0+", default=None)
    rack_id: Str | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = -1
    topology: HeartbeatTopology | None = field(nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    process_id: Str | None = field(nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    shutdown_application: Bool = False


@struct
class Status:
    status_code: Int8 = 0
    status_detail: Str = ""


@struct
class TopicPartition:
    topic: Str = ""
    partitions: list[Int32] = field()


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = field()
    active_partitions: list[TopicPartition] = field()
    standby_partitions: list[TopicPartition] = field()


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    member_id: Str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag_legacy: Int32 = field("0")
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int64 = field("1+", ignorable=True, default=-1)
    status: list[Status] | None = field(nullable="0+")
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    topology_description_required: Bool = field("1+")
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(nullable="0+", default=None)


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    group_ids: list[Str] = field()
    include_authorized_operations: Bool = False
    include_topology_description: Bool = field("1+")


@struct
class DescribeSubtopology:
    subtopology_id: Str = ""
    source_topics: list[Str] = field()
    repartition_sink_topics: list[Str] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_source_topics: list[TopicInfo] = field()


@struct
class DescribeTopology:
    epoch: Int32 = 0
    subtopologies: list[DescribeSubtopology] | None = field(nullable="0+", default=None)


@struct
class Assignment:
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


@struct
class Member:
    member_id: Str = ""
    member_epoch: Int32 = 0
    instance_id: Str | None = field(nullable="0+", default=None)
    rack_id: Str | None = field(nullable="0+", default=None)
    client_id: Str = ""
    client_host: Str = ""
    topology_epoch: Int32 = 0
    process_id: Str = ""
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] = field()
    task_offsets: list[TaskOffset] = field()
    task_end_offsets: list[TaskOffset] = field()
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    is_classic: Bool = False


@struct
class DescribeTopologyDescriptionNode:
    name: Str = field("1+")
    node_type: Int8 = field("1+")
    source_topics: list[Str] = field("1+")
    sink_topic: Str | None = field("1+", nullable="1+", default=None)
    stores: list[Str] = field("1+")
    successors: list[Str] = field("1+")


@struct
class DescribeTopologyDescriptionSubtopology:
    subtopology_id: Str = field("1+")
    nodes: list[DescribeTopologyDescriptionNode] = field("1+")


@struct
class DescribeTopologyDescriptionGlobalStore:
    source: DescribeTopologyDescriptionNode = field("1+")
    processor: DescribeTopologyDescriptionNode = field("1+")


@struct
class DescribeTopologyDescription:
    subtopologies: list[DescribeTopologyDescriptionSubtopology] = field("1+")
    global_stores: list[DescribeTopologyDescriptionGlobalStore] = field("1+")


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: DescribeTopology | None = field(nullable="0+", default=None)
    members: list[Member] = field()
    authorized_operations: Int32 = -2147483648
    topology_description: DescribeTopologyDescription | None = field("1+", nullable="1+", default=None)
    topology_description_status: Int8 = field("1+")
    assignor_name: Str | None = field("1+", nullable="1+", ignorable=True, default=None)


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()


@struct
class UpdateTopologyDescriptionNode:
    name: Str = ""
    node_type: Int8 = 0
    source_topics: list[Str] = field()
    sink_topic: Str | None = field(nullable="0+", default=None)
    stores: list[Str] = field()
    successors: list[Str] = field()


@struct
class UpdateTopologyDescriptionSubtopology:
    subtopology_id: Str = ""
    nodes: list[UpdateTopologyDescriptionNode] = field()


@struct
class UpdateTopologyDescriptionGlobalStore:
    source: UpdateTopologyDescriptionNode = field()
    processor: UpdateTopologyDescriptionNode = field()


@struct
class UpdateTopologyDescription:
    subtopologies: list[UpdateTopologyDescriptionSubtopology] = field()
    global_stores: list[UpdateTopologyDescriptionGlobalStore] = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest(Request["StreamsGroupTopologyDescriptionUpdateResponse"]):
    group_id: Str = ""
    member_id: Str = ""
    topology_epoch: Int32 = 0
    topology_description: UpdateTopologyDescription = field()


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
