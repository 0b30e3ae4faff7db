from __future__ import annotations

from kbroker.wire.schema import Int16, Int32, Request, Str, field, message, struct


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
