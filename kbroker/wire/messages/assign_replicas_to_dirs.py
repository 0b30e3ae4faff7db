from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import FIRST_OWN_TAG, Bool, Int16, Int32, Int64, Request, UuidField, field, message, struct


@struct
class PartitionData:
    partition_index: Int32 = 0
    is_damaged: Bool = field(tag=FIRST_OWN_TAG, default=False)


@struct
class TopicData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@struct
class DirectoryData:
    id: UuidField = ZERO_UUID
    topics: list[TopicData] = field()


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"]):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[DirectoryData] = field()


@struct
class ResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class ResponseTopicData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[ResponsePartitionData] = field()


@struct
class ResponseDirectoryData:
    id: UuidField = ZERO_UUID
    topics: list[ResponseTopicData] = field()


@message(api_key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[ResponseDirectoryData] = field()
