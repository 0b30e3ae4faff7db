from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = 0
    broker_ids: list[Int32] = field()


@struct
class CreatableTopicConfig:
    name: Str = ""
    value: Str | None = field(nullable="0+")


@struct
class CreatableTopic:
    name: Str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    topics: list[CreatableTopic] = field()
    timeout_ms: Int32 = 60000
    validate_only: Bool = field("1+")


@struct
class CreatableTopicConfigs:
    name: Str = field("5+")
    value: Str | None = field("5+", nullable="5+")
    read_only: Bool = field("5+")
    config_source: Int8 = field("5+", ignorable=True, default=-1)
    is_sensitive: Bool = field("5+")


@struct
class CreatableTopicResult:
    name: Str = ""
    topic_id: UuidField = field("7+", ignorable=True)
    error_code: Int16 = 0
    error_message: Str | None = field("1+", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", ignorable=True, default=-1)
    replication_factor: Int16 = field("5+", ignorable=True, default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+", nullable="5+", ignorable=True)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[CreatableTopicResult] = field()


@struct
class DeleteTopicState:
    name: Str | None = field("6+", nullable="6+", default=None)
    topic_id: UuidField = field("6+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[Str] = field("0-5", ignorable=True)
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult:
    name: Str | None = field(nullable="6+")
    topic_id: UuidField = field("6+", ignorable=True)
    error_code: Int16 = 0
    error_message: Str | None = field("5+", nullable="5+", ignorable=True, default=None)


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeletableTopicResult] = field()


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = field()


@struct
class CreatePartitionsTopic:
    name: Str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    name: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field()
