"""A member's half of the classic group protocol: its requests, and what follows from their responses.

Without a connection or a clock. The members of simulations, of benchmarks and of the tests of coordinators send these
requests in ways of their own. The assignment is eager: the leader gives each member every n-th partition of one topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.heartbeat import HeartbeatRequest
from kbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kbroker.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"

_VERSION_0 = b"\0\0"
"""Precedes subscriptions and assignments (``ConsumerProtocol`` of Kafka's clients)."""


def subscription(*topics: str) -> bytes:
    """Member metadata of the consumer protocol, version 0."""
    return _VERSION_0 + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """A member's assignment in the consumer protocol, version 0."""
    one = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(partitions))
    return _VERSION_0 + encode(ConsumerProtocolAssignment(assigned_partitions=[one]), 0)


def assigned(data: bytes | memoryview) -> list[int]:
    """The partitions in an assignment, of whichever topics."""
    decoded, _ = decode(ConsumerProtocolAssignment, 0, bytes(data), len(_VERSION_0))
    return [index for topic in decoded.assigned_partitions for index in topic.partitions]


def shares(topic: str, partitions: int, joined: JoinGroupResponse) -> dict[str, bytes]:
    """The assignments that a leader gives, by member id; nothing if the member that has joined does not lead."""
    if joined.leader != joined.member_id:
        return {}
    ids = sorted(member.member_id for member in joined.members)
    return {member_id: assignment(topic, range(at, partitions, len(ids))) for at, member_id in enumerate(ids)}


def join_request(
    group: str,
    member_id: str,
    protocols: Sequence[tuple[str, bytes]],
    *,
    instance_id: str | None = None,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    protocol_type: str = PROTOCOL_TYPE,
) -> JoinGroupRequest:
    """JoinGroup; ``protocols`` are the member's assignors, each with what :func:`subscription` gives."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def sync_request(
    group: str,
    generation_id: int,
    member_id: str,
    assignments: Mapping[str, bytes],
    *,
    instance_id: str | None = None,
    protocol_name: str = ASSIGNOR,
) -> SyncGroupRequest:
    """SyncGroup; ``assignments`` by member id, of the leader alone."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=of_member, assignment=data) for of_member, data in assignments.items()
        ],
    )


def heartbeat_request(
    group: str, generation_id: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    """Heartbeat."""
    return HeartbeatRequest(
        group_id=group, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
    )
