"""Reports about the log of a group coordinator: what it may hold, and what is read of it again."""

from __future__ import annotations

from typing import Any

from compat_tests.brokers import Broker
from compat_tests.groups.wire_world import EMPTY_ASSIGNMENT
from compat_tests.reports.asked import LATEST, Asked
from compat_tests.reports.committed import commit, delete, fetched, new_group
from kbroker.sim.classic_group_clients import subscription
from kbroker.types import Uuid
from kbroker.wire.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kbroker.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.groups import ListGroupsRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kbroker.wire.records import consumer_group as stored
from kbroker.wire.records import streams_group
from kbroker.wire.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kbroker.wire.records.versioned import encode_coordinator_key, encode_versioned
from tests.patience import eventually

OFFSETS = "__consumer_offsets"


def written(key: Any, value: Any, version: int = 0) -> tuple[bytes, bytes]:
    """A record of the coordinator's log."""
    return encode_coordinator_key(key), encode_versioned(value, version)


def committed(group: str, topic: str, offset: int) -> tuple[bytes, bytes]:
    """The record of an offset."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1_900_000_000_000)
    return written(OffsetCommitKey(group=group, topic=topic, partition=0), value, 3)


def modern_member(group: str, member: str, topic: str, topic_id: Uuid, epoch: int) -> list[tuple[bytes, bytes]]:
    """The records of a member that has partition 0."""
    mine = stored.TopicPartitions(topic_id=topic_id, partitions=[0])
    target = stored.TopicPartition(topic_id=topic_id, partitions=[0])
    return [
        written(
            stored.ConsumerGroupMemberMetadataKey(group_id=group, member_id=member),
            stored.ConsumerGroupMemberMetadataValue(
                client_id="c", client_host="h", subscribed_topic_names=[topic], rebalance_timeout_ms=600_000
            ),
        ),
        written(
            stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member),
            stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[target]),
        ),
        written(
            stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member),
            stored.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch, previous_member_epoch=epoch - 1, state=0, assigned_partitions=[mine]
            ),
        ),
    ]


def modern_group(group: str, epoch: int) -> list[tuple[bytes, bytes]]:
    """The records of a group of KIP-848's protocol."""
    return [
        written(stored.ConsumerGroupMetadataKey(group_id=group), stored.ConsumerGroupMetadataValue(epoch=epoch)),
        written(
            stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
            stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        ),
    ]


def test_records_that_compaction_leaves(asked: Asked, broker: Broker) -> None:
    topic = asked.topic_with()
    topic_id = asked.topic_ids[topic]
    modern, streams, double, bystander = (new_group(asked) for _ in range(4))
    assert commit(asked, bystander, topic, 1) == 0
    asked.topic_ids[OFFSETS] = topic_id
    asked.write_internal(OFFSETS, committed(modern, topic, 11), *modern_group(modern, 3))
    asked.write_internal(
        OFFSETS,
        committed(streams, topic, 12),
        written(
            streams_group.StreamsGroupMetadataKey(group_id=streams), streams_group.StreamsGroupMetadataValue(epoch=3)
        ),
    )
    # Of two members that had a partition one after the other, the record between is gone: the first let it go.
    asked.write_internal(
        OFFSETS,
        committed(double, topic, 13),
        *modern_group(double, 5),
        *modern_member(double, "first", topic, topic_id, 4),
        *modern_member(double, "second", topic, topic_id, 5),
    )
    asked.write_internal(OFFSETS, (b"\0\x63unknown", b"\0\0new"), (b"\0\x63gone", None))
    asked.again(broker)
    groups = {modern: 11, streams: 12, double: 13, bystander: 1}
    assert {each: fetched(asked, each, topic) for each in groups} == {each: (0, at) for each, at in groups.items()}
    listed = {each.group_id: each.group_type for each in asked.ask(ListGroupsRequest(), 5).groups}
    assert [listed.get(each) for each in groups] == ["consumer", "streams", "consumer", "classic"]
    beat = ConsumerGroupHeartbeatRequest(
        group_id=modern,
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=600_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    answer = asked.ask(beat, 1)
    assert (answer.error_code, answer.member_epoch) == (0, 4)
    told = asked.ask(ConsumerGroupDescribeRequest(group_ids=[double]), 1).groups[0]
    assert (told.error_code, told.group_epoch, {each.member_id for each in told.members}) == (0, 5, {"first", "second"})


def test_the_log_is_deleted_while_groups_live(asked: Asked, broker: Broker) -> None:
    topic = asked.topic_with()
    asked.topic_ids[OFFSETS] = asked.topic_ids[topic]
    group = new_group(asked)
    assert commit(asked, group, topic, 5) == 0
    asked.delete_topic(OFFSETS)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    eventually(lambda: asked.ask(find, 4).coordinators[0].error_code == 0)
    eventually(lambda: fetched(asked, group, topic)[0] == 0)
    assert fetched(asked, group, topic) == (0, -1)
    assert commit(asked, group, topic, 7) == 0
    asked.again(broker)
    assert fetched(asked, group, topic) == (0, 7)


def test_more_than_a_batch_holds_before_it_is_compressed(asked: Asked, broker: Broker) -> None:
    group = new_group(asked)
    topic = asked.made_topic(f"wide-{group}", 400)
    partitions = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=each, committed_metadata="m" * 4096)
        for each in range(400)
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    answer = asked.ask(request, 9)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    classic = new_group(asked)
    joining = JoinGroupRequest(
        group_id=classic,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic) + bytes(3 << 20))],
    )
    joined = asked.ask(joining, 3)
    assert joined.error_code == 0
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=EMPTY_ASSIGNMENT)
    synced = asked.ask(
        SyncGroupRequest(
            group_id=classic, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
        ),
        3,
    )
    assert synced.error_code == 0
    asked.again(broker, crash=True)
    one = OffsetFetchRequestGroup(group_id=group, topics=None)
    found = asked.ask(OffsetFetchRequest(groups=[one]), 9).groups[0].topics[0].partitions
    assert sorted((each.partition_index, each.committed_offset) for each in found) == [
        (each, each) for each in range(400)
    ]
    assert (
        commit(asked, classic, topic, 1, generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id)
        == 0
    )


def test_nothing_to_commit(asked: Asked) -> None:
    topic, group = asked.topic_with(), new_group(asked)
    end = asked.offset(OFFSETS, LATEST).offset
    answer = asked.ask(OffsetCommitRequest(group_id=group), 9)
    assert answer.topics == []
    assert asked.offset(OFFSETS, LATEST).offset == end
    assert delete(asked, group, topic) == 69
