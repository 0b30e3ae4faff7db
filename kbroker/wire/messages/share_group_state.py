from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class InitializePartitionData:
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


@struct
class InitializeStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[InitializePartitionData] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[InitializeStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = field()


@struct
class PartitionData:
    partition: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ReadStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[ReadStateData] = field()


@struct
class StateBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


@struct
class ReadPartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = field()


@struct
class ReadStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[ReadPartitionResult] = field()


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult] = field()


@struct
class WritePartitionData:
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field("1+", ignorable=True, default=-1)
    state_batches: list[StateBatch] = field()


@struct
class WriteStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[WritePartitionData] = field()


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[WriteStateData] = field()


@struct
class WriteStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = field()


@struct
class DeletePartitionData:
    partition: Int32 = 0


@struct
class DeleteStateData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[DeletePartitionData] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    group_id: Str = ""
    topics: list[DeleteStateData] = field()


@struct
class DeleteStateResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionResult] = field()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = field()


@struct
class ReadStateSummaryData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest(Request["ReadShareGroupStateSummaryResponse"]):
    group_id: Str = ""
    topics: list[ReadStateSummaryData] = field()


@struct
class SummaryPartitionResult:
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field("1+", ignorable=True, default=-1)


@struct
class ReadStateSummaryResult:
    topic_id: UuidField = ZERO_UUID
    partitions: list[SummaryPartitionResult] = field()


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = field()
