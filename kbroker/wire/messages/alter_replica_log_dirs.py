"""AlterReplicaLogDirs (key 34): versions 1-2, flexible from 2."""

from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


@struct
class AlterReplicaLogDirTopic:
    """Part of AlterReplicaLogDirsRequest."""

    name: Str = ""
    partitions: list[Int32] = field()


@struct
class AlterReplicaLogDir:
    """Part of AlterReplicaLogDirsRequest."""

    path: Str = ""
    topics: list[AlterReplicaLogDirTopic] = field()


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Request of AlterReplicaLogDirs (key 34)."""

    dirs: list[AlterReplicaLogDir] = field()


@struct
class AlterReplicaLogDirPartitionResult:
    """Part of AlterReplicaLogDirsResponse."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    """Part of AlterReplicaLogDirsResponse."""

    topic_name: Str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Response to AlterReplicaLogDirs (key 34)."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field()
