"""DescribeShareGroupOffsets (key 90): versions 0-1, flexible from 0.

Two tagged fields (KIP-482) are kbroker's own: the wish to hear what is in flight, and what the leader of a partition
says to it. Others skip them, and without the wish nobody is sent any.
"""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import (
    FIRST_OWN_TAG,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Str,
    UuidField,
    field,
    message,
    struct,
)


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: Str = ""
    partitions: list[Int32] = field()


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: Str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(nullable="0+")


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()
    wants_in_flight: Bool = field(tag=FIRST_OWN_TAG, default=False)


@struct
class InFlightRange:
    """Neighbouring records of a share partition that are in one state. ``delivery_state`` is that of KIP-932."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
    member_id: Str | None = field(nullable="0+", default=None)
    lock_ms_left: Int64 = -1


@struct
class InFlight:
    """The records in flight as the leader knows them, by offset, and how many ranges more there are."""

    ranges: list[InFlightRange] = field()
    ranges_left_out: Int32 = 0


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = field("1+", ignorable=True, default=-1)
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    in_flight: InFlight | None = field(tag=FIRST_OWN_TAG, nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: Str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32 = 0
    start_offset: Int64 = 0


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: Str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field()


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"]):
    group_id: Str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: Str = ""


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    group_id: Str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
