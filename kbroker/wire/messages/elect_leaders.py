from __future__ import annotations

from kbroker.wire.schema import Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class TopicPartitions:
    topic: Str = ""
    partitions: list[Int32] = field()


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    election_type: Int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+")
    timeout_ms: Int32 = 60000


@struct
class PartitionResult:
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: Str = ""
    partition_result: list[PartitionResult] = field()


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field()
