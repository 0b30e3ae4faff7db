"""The messages of members of a classic consumer group to each other, opaque to the broker."""

from __future__ import annotations

from kbroker.wire.schema import Bytes, Int32, Str, field, message, struct


@struct
class TopicPartition:
    topic: Str = field("1+")
    partitions: list[Int32] = field("1+")


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """Subscription of a member."""

    topics: list[Str] = field()
    user_data: Bytes | None = field(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field("1+", ignorable=True)
    generation_id: Int32 = field("2+", ignorable=True, default=-1)
    rack_id: Str | None = field("3+", nullable="3+", ignorable=True, default=None)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    topic: Str = ""
    partitions: list[Int32] = field()


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """Assignment of a member."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field()
    user_data: Bytes | None = field(nullable="0+", default=None)
