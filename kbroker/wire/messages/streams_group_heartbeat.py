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
class Subtopology:
    subtopology_id: Str = ""
    source_topics: list[Str] = field()
    source_topic_regex: list[Str] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[Str] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@struct
class Topology:
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = field()


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
    topology: Topology | None = field(nullable="0+", default=None)
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
class ResponseTaskIds:
    subtopology_id: Str = ""
    partitions: list[Int32] = field()


@struct
class ResponseEndpoint:
    host: Str = ""
    port: UInt16 = 0


@struct
class TopicPartition:
    topic: Str = ""
    partitions: list[Int32] = field()


@struct
class EndpointToPartitions:
    user_endpoint: ResponseEndpoint = field()
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
    active_tasks: list[ResponseTaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[ResponseTaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[ResponseTaskIds] | None = field(nullable="0+", default=None)
    topology_description_required: Bool = field("1+")
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(nullable="0+", default=None)
