"""DescribeShareGroupOffsets (key 90): versions 0-1, flexible from 0."""

from __future__ import annotations

from kbroker.types import ZERO_UUID
from kbroker.wire.schema import Int16, Int32, Int64, Request, Str, UuidField, field, message, struct


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """Part of DescribeShareGroupOffsetsRequest."""

    topic_name: Str = ""
    partitions: list[Int32] = field()


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """Part of DescribeShareGroupOffsetsRequest."""

    group_id: Str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(nullable="0+")


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest(Request["DescribeShareGroupOffsetsResponse"]):
    """Request of DescribeShareGroupOffsets (key 90)."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """Part of DescribeShareGroupOffsetsResponse."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = field("1+", ignorable=True, default=-1)
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """Part of DescribeShareGroupOffsetsResponse."""

    topic_name: Str = ""
    topic_id: UuidField = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """Part of DescribeShareGroupOffsetsResponse."""

    group_id: Str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """Response to DescribeShareGroupOffsets (key 90)."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()
