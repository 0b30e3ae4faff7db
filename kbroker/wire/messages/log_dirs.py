"""DescribeLogDirs (key 35): versions 1-5, flexible from 2.

Four tagged fields (KIP-482) are kbroker's own: the wish to hear how far a node has scrubbed its directories, or to have
it begin, that to hear what is missing from damaged logs, and what the node says to each. Others skip them, and without
the wish nobody is sent any.
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
class DescribableLogDirTopic:
    topic: Str = ""
    partitions: list[Int32] = field()


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    topics: list[DescribableLogDirTopic] | None = field(nullable="0+")
    wants_scrub: Int8 = field("2+", tag=FIRST_OWN_TAG, ignorable=True)
    """1: to hear of it. 2: to begin, too."""
    wants_damage: Bool = field("2+", tag=FIRST_OWN_TAG + 1, default=False, ignorable=True)
    wants_load: Bool = field("2+", tag=FIRST_OWN_TAG + 2, default=False, ignorable=True)


@struct
class MissingOffsets:
    """Offsets that damage took from a log, ``end_offset`` not included."""

    start_offset: Int64 = 0
    end_offset: Int64 = 0
    reason: Str = ""


@struct
class PartitionLoad:
    """The cost of a replica for the broker since its process began. A follower's is what it copies, which the leader's
    ``bytes_in`` tell."""

    bytes_in: Int64 = 0
    bytes_out: Int64 = 0
    requests: Int64 = 0
    """Appends and reads that had records."""


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False
    damage: list[MissingOffsets] = field("2+", tag=FIRST_OWN_TAG, ignorable=True)
    load: list[PartitionLoad] = field("2+", tag=FIRST_OWN_TAG + 1, ignorable=True)
    """A single one, where it was asked for."""


@struct
class DescribeLogDirsTopic:
    name: Str = ""
    partitions: list[DescribeLogDirsPartition] = field()


@struct
class Scrub:
    """The scrubber's progress in a directory. Times are milliseconds since 1970, 0 for never; numbers are those
    of the latest round."""

    began_ms: Int64 = 0
    ended_ms: Int64 = 0
    done_bytes: Int64 = 0
    total_bytes: Int64 = 0
    found: Int32 = 0
    bytes_per_second: Int64 = 0


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: Str = ""
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field("4+", ignorable=True, default=-1)
    usable_bytes: Int64 = field("4+", ignorable=True, default=-1)
    is_cordoned: Bool = field("5+", ignorable=True)
    scrub: Scrub | None = field("2+", tag=FIRST_OWN_TAG, nullable="2+", default=None, ignorable=True)


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field()


@struct
class AlterReplicaLogDirTopic:
    name: Str = ""
    partitions: list[Int32] = field()


@struct
class AlterReplicaLogDir:
    path: Str = ""
    topics: list[AlterReplicaLogDirTopic] = field()


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    dirs: list[AlterReplicaLogDir] = field()


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: Str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field()


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
