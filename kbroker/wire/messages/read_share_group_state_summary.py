from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class PartitionData:
    partition: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class ReadStateSummaryData:
    topic_id: UuidField = ZERO_UUID
    partitions: list[PartitionData] = field()


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest(Request["ReadShareGroupStateSummaryResponse"]):
    group_id: Str = ""
    topics: list[ReadStateSummaryData] = field()


@struct
class PartitionResult:
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
    partitions: list[PartitionResult] = field()


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = field()
