from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Str, UInt16, field, message, struct


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest(Request["StreamsGroupDescribeResponse"]):
    group_ids: list[Str] = field()
    include_authorized_operations: Bool = False
    include_topology_description: Bool = field("1+")


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
class Subtopology:
    subtopology_id: Str = ""
    source_topics: list[Str] = field()
    repartition_sink_topics: list[Str] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_source_topics: list[TopicInfo] = field()


@struct
class Topology:
    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = field(nullable="0+", default=None)


@struct
class Endpoint:
    host: Str = ""
    port: UInt16 = 0


@struct
class TaskOffset:
    subtopology_id: Str = ""
    partition: Int32 = 0
    offset: Int64 = 0


@struct
class TaskIds:
    subtopology_id: Str = ""
    partitions: list[Int32] = field()


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
class TopologyDescriptionNode:
    name: Str = field("1+")
    node_type: Int8 = field("1+")
    source_topics: list[Str] = field("1+")
    sink_topic: Str | None = field("1+", nullable="1+", default=None)
    stores: list[Str] = field("1+")
    successors: list[Str] = field("1+")


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: Str = field("1+")
    nodes: list[TopologyDescriptionNode] = field("1+")


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = field("1+")
    processor: TopologyDescriptionNode = field("1+")


@struct
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = field("1+")
    global_stores: list[TopologyDescriptionGlobalStore] = field("1+")


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = field(nullable="0+", default=None)
    members: list[Member] = field()
    authorized_operations: Int32 = -2147483648
    topology_description: TopologyDescription | None = field("1+", nullable="1+", default=None)
    topology_description_status: Int8 = field("1+")
    assignor_name: Str | None = field("1+", nullable="1+", ignorable=True, default=None)


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()
