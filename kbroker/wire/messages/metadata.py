from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Request, Str, UuidField, field, message, struct


@struct
class MetadataRequestTopic:
    topic_id: UuidField = field("10+", ignorable=True)
    name: Str | None = field(nullable="10+")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10")
    include_topic_authorized_operations: Bool = field("8+")


@struct
class MetadataResponseBroker:
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: Str | None = field("1+", nullable="1+", ignorable=True, default=None)


@struct
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field("7+", ignorable=True, default=-1)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    offline_replicas: list[Int32] = field("5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: Str | None = field(nullable="12+")
    topic_id: UuidField = field("10+", ignorable=True)
    is_internal: Bool = field("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: Str | None = field("2+", nullable="2+", ignorable=True, default=None)
    controller_id: Int32 = field("1+", ignorable=True, default=-1)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", ignorable=True)
