from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = 0
    offset: Int64 = 0


@struct
class DeleteRecordsTopic:
    name: Str = ""
    partitions: list[DeleteRecordsPartition] = field()


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: Str = ""
    partitions: list[DeleteRecordsPartitionResult] = field()


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = field()
