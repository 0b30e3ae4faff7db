from __future__ import annotations

from kbroker.wire.schema import FIRST_OWN_TAG, Bool, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class DescribableLogDirTopic:
    topic: Str = ""
    partitions: list[Int32] = field()


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    topics: list[DescribableLogDirTopic] | None = field(nullable="0+")
    wants_damage: Bool = field("2+", tag=FIRST_OWN_TAG, default=False, ignorable=True)


@struct
class MissingOffsets:
    """Offsets that damage took from a log, ``end_offset`` not included."""

    start_offset: Int64 = 0
    end_offset: Int64 = 0
    reason: Str = ""


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False
    damage: list[MissingOffsets] = field("2+", tag=FIRST_OWN_TAG, ignorable=True)


@struct
class DescribeLogDirsTopic:
    name: Str = ""
    partitions: list[DescribeLogDirsPartition] = field()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: Str = ""
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field("4+", ignorable=True, default=-1)
    usable_bytes: Int64 = field("4+", ignorable=True, default=-1)
    is_cordoned: Bool = field("5+", ignorable=True)


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field()
