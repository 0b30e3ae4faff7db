"""OffsetForLeaderEpoch.

Two tagged fields (KIP-482) are kbroker's own: a replica that is coming asks one that is going, on the same machine, to
hand its log over in a directory, and hears what was handed over (``node.replicas.hand_overs``).
"""

from __future__ import annotations

from kbroker.wire.schema import FIRST_OWN_TAG, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = field("2+", ignorable=True, default=-1)
    leader_epoch: Int32 = 0
    hand_over_to: Str = field("4+", tag=FIRST_OWN_TAG, ignorable=True)


@struct
class OffsetForLeaderTopic:
    topic: Str = ""
    partitions: list[OffsetForLeaderPartition] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    replica_id: Int32 = field("3+", ignorable=True, default=-2)
    topics: list[OffsetForLeaderTopic] = field()


@struct
class HandedOver:
    """The log that is in the directory by now; it was compacted up to ``clean_offset``, or never (-1)."""

    log_start_offset: Int64 = 0
    end_offset: Int64 = 0
    size: Int64 = 0
    clean_offset: Int64 = -1


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = field("1+", ignorable=True, default=-1)
    end_offset: Int64 = -1
    handed_over: HandedOver | None = field("4+", tag=FIRST_OWN_TAG, nullable="4+", default=None, ignorable=True)


@struct
class OffsetForLeaderTopicResult:
    topic: Str = ""
    partitions: list[EpochEndOffset] = field()


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
