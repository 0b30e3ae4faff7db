from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Int64, Request, UuidField, field, message, struct


@struct
class BrokerState:
    broker_id: Int32 = field("3+")
    broker_epoch: Int64 = field("3+", default=-1)


@struct
class PartitionData:
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = field("0-2")
    new_isr_with_epochs: list[BrokerState] = field("3+")
    leader_recovery_state: Int8 = field("1+")
    partition_epoch: Int32 = 0


@struct
class TopicData:
    topic_id: UuidField = field("2+", ignorable=True)
    partitions: list[PartitionData] = field()


@message(api_key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = field()


@struct
class ResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = field()
    leader_recovery_state: Int8 = field("1+", ignorable=True)
    partition_epoch: Int32 = 0


@struct
class ResponseTopicData:
    topic_id: UuidField = field("2+", ignorable=True)
    partitions: list[ResponsePartitionData] = field()


@message(api_key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[ResponseTopicData] = field()
