"""Share groups in the group coordinator's core: membership, states before assignments, offsets, loads.

The cases are those of Apache Kafka's ``GroupMetadataManagerTest`` (its share half), by behaviour."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.share_group import NO_STATES
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.classic_groups import JoinGroupRequest
from kbroker.wire.messages.offset_commit import OffsetCommitRequest
from kbroker.wire.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.groups.consumer_harness import Consumer
from tests.groups.harness import GROUP
from tests.groups.share_harness import ShareMember, ShareShard, settle


def everything(topic: str = "t", count: int = 6) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


def state_of(shard: ShareShard) -> dict[str, Any]:
    group = shard.share_group
    fields = {
        each.name: getattr(group, each.name)
        for each in dataclasses.fields(group)
        if not each.name.startswith("metadata_refresh") and each.name != "states_changed_ms"
    }
    return {**fields, "members": dict(sorted(group.members.items()))}


def begin_to_alter(shard: ShareShard, offsets: dict[int, int], topic: str = "t") -> Any:
    """The first half of an alteration: its response, and the states that it wants."""
    request = AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
        ],
    )
    return shard.run(shard.core.share_admin.alter_offsets(request, shard.now_ms))


def alter(shard: ShareShard, offsets: dict[int, int], topic: str = "t") -> dict[int, ErrorCode]:
    response, wanted = begin_to_alter(shard, offsets, topic)
    shard.states.update(wanted.partitions)
    shard.run(shard.core.share_admin.state_initialized(wanted, dict.fromkeys(wanted.partitions, ErrorCode.NONE)))
    return {each.partition_index: ErrorCode(each.error_code) for each in response.responses[0].partitions}


def test_a_partition_is_assigned_only_once_its_state_is_there() -> None:
    shard = ShareShard()
    member = ShareMember(shard, "a")
    first = member.heartbeat()
    assert first is not None and first.assignment is not None and first.assignment.topic_partitions == []
    assert member.interval_ms == 1_000  # it is to ask again soon
    shard.advance(1_000)
    member.heartbeat()
    assert member.partitions == set()
    assert len(shard.initialize()) == 1
    assert shard.starts("t") == dict.fromkeys(range(6), -1)
    shard.advance(1_000)
    member.heartbeat()
    assert member.partitions == everything()
    assert member.interval_ms == 5_000
    assert shard.share_group.states.initializing == {}


def test_states_that_cannot_be_made_are_asked_for_again() -> None:
    shard = ShareShard()
    member = ShareMember(shard, "a")
    shard.state_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    member.heartbeat()
    assert len(shard.initialize()) == 1
    assert shard.share_group.states == NO_STATES
    shard.state_error = ErrorCode.NONE
    settle(shard, [member])
    assert member.partitions == everything()
    assert shard.starts("t") == dict.fromkeys(range(6), -1)


def test_states_that_have_outlived_their_group_are_begun_anew() -> None:
    """A power cut took the end of the log with the group, and not that with its states."""
    lost, shard = ShareShard(), ShareShard()
    settle(lost, [ShareMember(lost, "a")])
    shard.states = {key: (epoch + 2, start) for key, (epoch, start) in lost.states.items()}
    member = ShareMember(shard, "a")
    settle(shard, [member])
    assert member.partitions == everything()


def test_an_answer_that_never_comes_is_asked_for_again_after_the_retry_interval() -> None:
    shard = ShareShard()
    member = ShareMember(shard, "a")
    member.heartbeat()
    assert len(shard.core.share.take_wanted()) == 1  # and lost
    shard.advance(29_000)
    member.heartbeat()
    assert shard.core.share.take_wanted() == []
    shard.advance(1_000)
    member.heartbeat()
    (again,) = shard.core.share.take_wanted()
    assert len(again.partitions) == 6


def test_nothing_is_asked_for_if_the_records_could_not_be_stored() -> None:
    shard = ShareShard()
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    ShareMember(shard, "a").heartbeat()
    assert shard.core.share.take_wanted() == []


def test_partitions_added_to_a_topic_begin_at_0_and_those_of_a_new_topic_where_the_group_says() -> None:
    """KAFKA-20742: records that were written to a new partition before it was seen were passed over."""
    shard = ShareShard(topics={"t": 2})
    member = ShareMember(shard, "a", ["t", "u"])
    settle(shard, [member])
    shard.set_topics(t=4, u=1)
    settle(shard, [member])
    assert shard.starts("t") == {0: -1, 1: -1, 2: 0, 3: 0}
    assert shard.starts("u") == {0: -1}
    assert member.partitions == everything("t", 4) | {("u", 0)}


def test_members_share_partitions_evenly() -> None:
    shard = ShareShard(topics={"t": 3})
    members = [ShareMember(shard, f"m{index}") for index in range(4)]
    settle(shard, members)
    readers = [sum(("t", partition) in member.partitions for member in members) for partition in range(3)]
    assert min(readers) >= 1 and sum(readers) == 6
    assert {len(member.partitions) for member in members} <= {1, 2}
    group = shard.share_group
    assert group.state.value == "Stable"
    assert {member.member_epoch for member in group.members.values()} == {group.group_epoch}


def test_a_target_of_a_clock_that_was_ahead_holds_up_nobody() -> None:
    shard = ShareShard()
    settle(shard, [ShareMember(shard, "a")])
    shard.now_ms -= 600_000
    late = ShareMember(shard.reloaded(), "b")
    late.heartbeat()
    assert late.partitions


def test_members_with_different_topics_get_their_own() -> None:
    shard = ShareShard(topics={"t": 2, "u": 2})
    one, two = ShareMember(shard, "a", ["t"]), ShareMember(shard, "b", ["t", "u"])
    settle(shard, [one, two])
    assert one.partitions <= everything("t", 2)
    assert {topic for topic, _ in two.partitions} == {"t", "u"}
    assert one.partitions | two.partitions == everything("t", 2) | everything("u", 2)


def test_a_member_that_leaves_or_falls_silent_is_out_and_others_take_over() -> None:
    shard = ShareShard(topics={"t": 2})
    members = [ShareMember(shard, name) for name in "abc"]
    settle(shard, members)
    left = members[0].heartbeat(member_epoch=-1)
    assert left is not None and left.member_epoch == -1
    for _ in range(11):
        members[1].heartbeat()
        shard.advance(4_500)
    assert list(shard.share_group.members) == ["b"]
    settle(shard, members[1:2])
    assert members[1].partitions == everything("t", 2)
    members[1].heartbeat(member_epoch=-1)
    assert shard.share_group.state.value == "Empty"
    assert shard.core.next_deadline() == shard.core._next_expiry_check_ms


def test_a_member_that_could_not_be_taken_out_is_taken_out_later() -> None:
    shard = ShareShard()
    ShareMember(shard, "a").heartbeat()
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.advance(45_000)
    assert shard.share_group.members
    shard.fail_appends = None
    shard.advance(500)
    assert not shard.share_group.members


def test_epochs_fence_members() -> None:
    shard = ShareShard()
    member = ShareMember(shard, "a")
    settle(shard, [member])
    epoch = member.epoch
    assert member.heartbeat(member_epoch=epoch + 1) is None
    assert member.error is ErrorCode.FENCED_MEMBER_EPOCH
    previous = shard.share_group.members["a"].previous_member_epoch
    assert 0 < previous < epoch
    assert member.heartbeat(member_epoch=previous) is not None  # its last reply was lost
    assert member.heartbeat(member_epoch=1 if previous > 1 else -2) is None
    assert member.error is ErrorCode.FENCED_MEMBER_EPOCH
    again = member.heartbeat(member_epoch=0, subscribed_topic_names=["t"])  # it starts over
    assert again is not None and again.member_epoch == epoch
    stranger = ShareMember(shard, "b")
    stranger.epoch = 3
    assert stranger.heartbeat() is None
    assert stranger.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_size_limit_refuses_the_one_too_many() -> None:
    shard = ShareShard(share_max_size=1)
    first, second = ShareMember(shard, "a"), ShareMember(shard, "b")
    first.heartbeat()
    assert second.heartbeat() is None
    assert second.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert second.message == "The share group has reached its maximum capacity of 1 members."
    assert first.heartbeat() is not None


def test_a_group_id_belongs_to_one_kind_of_group() -> None:
    shard = ShareShard()
    member = ShareMember(shard, "a")
    member.heartbeat()
    consumer = Consumer(shard, member_id="c")
    assert consumer.send() is None
    assert consumer.error is ErrorCode.GROUP_ID_NOT_FOUND
    joined = shard.run(
        shard.core.join_group(JoinGroupRequest(group_id=GROUP), ClientContext("c", "/h", 9), shard.now_ms)
    )
    assert joined.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(ApiError, match="is not a consumer group"):
        shard.core.commit_offsets(OffsetCommitRequest(group_id=GROUP), 9, shard.now_ms)
    with pytest.raises(ApiError, match="is not a consumer group"):
        shard.core.admin.describe_consumer_group(GROUP)

    other = ShareShard()
    Consumer(other, member_id="c").send()
    late = ShareMember(other, "a")
    assert late.heartbeat() is None
    assert late.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert late.message == f"Group {GROUP} is not a share group."


def test_groups_are_listed_and_described() -> None:
    shard = ShareShard(topics={"t": 1})
    member = ShareMember(shard, "a")
    settle(shard, [member])
    (listed,) = shard.core.admin.list_groups((), {"share"})
    assert (listed.group_id, listed.group_type, listed.protocol_type) == (GROUP, "share", "share")
    assert list(shard.core.admin.list_groups((), {"consumer"})) == []
    assert list(shard.core.admin.list_groups({"empty"}, ())) == []
    described = shard.core.share_admin.describe(GROUP)
    assert described.group_state == "Stable" and described.assignor_name == "simple"
    (shown,) = described.members
    assert shown.subscribed_topic_names == ["t"] and shown.member_epoch == member.epoch
    (assigned,) = shown.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0])


def test_offsets_are_altered_while_nobody_is_in_the_group_which_need_not_exist() -> None:
    shard = ShareShard()
    outcome = alter(shard, {0: 7, 6: 1, -1: 1})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome == {0: ErrorCode.NONE, 6: unknown, -1: unknown}
    assert shard.starts("t") == {0: 7}
    member = ShareMember(shard, "a")
    settle(shard, [member])
    assert shard.starts("t") == {0: 7, **dict.fromkeys(range(1, 6), 0)}
    assert member.partitions == everything()
    with pytest.raises(ApiError) as refused:
        alter(shard, {0: 1})
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("topic", ["t", "u"])
def test_an_alteration_that_ends_half_way_keeps_no_member_asking(topic: str) -> None:
    """The node that carried it out is gone: the states are there from before, or nobody subscribes to the topic."""
    shard = ShareShard(topics={"t": 2, "u": 1})
    first = ShareMember(shard, "a")
    settle(shard, [first])
    first.heartbeat(member_epoch=-1)
    begin_to_alter(shard, {0: 7}, topic)
    for again in (shard, shard.reloaded()):
        member = ShareMember(again, "b")
        settle(again, [member])
        assert member.partitions == everything("t", 2)
        again.advance(40_000)
        member.heartbeat()
        assert member.interval_ms == 5_000


def test_an_alteration_that_fails_late_takes_nothing_from_the_next_one() -> None:
    """A client asks again after the time that an alteration has, too."""
    shard = ShareShard()
    _, first = begin_to_alter(shard, {0: 7})
    _, second = begin_to_alter(shard, {0: 9})
    shard.states.update(second.partitions)
    for wanted, error in ((first, ErrorCode.COORDINATOR_NOT_AVAILABLE), (second, ErrorCode.NONE)):
        errors = dict.fromkeys(wanted.partitions, error)
        shard.run(shard.core.share_admin.state_initialized(wanted, errors, as_a_whole=False))
    settle(shard, [ShareMember(shard, "a")])
    assert shard.starts("t")[0] == 9


def test_altered_offsets_begin_in_an_epoch_that_no_state_has_yet() -> None:
    """The share coordinator refuses a state of an older epoch (KAFKA-20910)."""
    shard = ShareShard()
    alter(shard, {0: 7})
    first = shard.share_group.group_epoch
    assert {epoch for epoch, _ in shard.states.values()} == {first}
    alter(shard, {0: 3})
    assert shard.share_group.group_epoch == first + 1
    assert list(shard.states.values()) == [(first + 1, 3)]
    shard = shard.reloaded()
    assert shard.share_group.group_epoch == first + 1
    ShareMember(shard, "a").heartbeat()
    epoch = shard.share_group.group_epoch
    with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
        alter(shard, {0: 1})
    assert shard.share_group.group_epoch == epoch > first + 1


def test_offsets_are_deleted_by_topic() -> None:
    shard = ShareShard(topics={"t": 2, "u": 1})
    member = ShareMember(shard, "a", ["t", "u"])
    settle(shard, [member])
    with pytest.raises(ApiError) as refused:
        shard.core.share_admin.begin_offsets_deletion(GROUP, ["t"])
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    member.heartbeat(member_epoch=-1)
    begun = shard.run(shard.core.share_admin.begin_offsets_deletion(GROUP, ["t", "nowhere"]))
    assert set(begun.names.values()) == {"t"} and set(begun.errors) == {"nowhere"}
    assert list(shard.share_group.states.deleting.values()) == ["t"]
    again = shard.run(shard.core.share_admin.begin_offsets_deletion(GROUP, ["t"]))  # the first try got no answer
    assert again.request == begun.request
    shard.delete(again.request)
    assert shard.share_group.states.deleting == {}
    assert shard.starts("t") == {} and shard.starts("u") == {0: -1}
    assert set(shard.run(shard.core.share_admin.begin_offsets_deletion(GROUP, ["t"])).errors) == {"t"}


@pytest.mark.parametrize("is_answered", [True, False])
def test_states_that_are_being_deleted_begin_anew_only_once_they_are_gone(is_answered: bool) -> None:
    """The share coordinator may move meanwhile, and have the deletion later than the new states: these were gone."""
    shard = ShareShard(topics={"t": 2})
    first = ShareMember(shard, "a")
    settle(shard, [first])
    first.heartbeat(member_epoch=-1)
    begun = shard.run(shard.core.share_admin.begin_offsets_deletion(GROUP, ["t"]))
    member = ShareMember(shard, "b")
    member.heartbeat()
    assert shard.core.share.take_wanted() == []
    assert member.interval_ms == 1_000
    if is_answered:
        shard.delete(begun.request)
    else:
        shard.advance(30_000)
    settle(shard, [member])
    assert member.partitions == everything("t", 2)
    assert shard.starts("t") == {0: -1, 1: -1}


@pytest.mark.parametrize("is_answered", [True, False])
def test_offsets_that_are_being_deleted_are_altered_only_once_they_are_gone(is_answered: bool) -> None:
    """A deletion that came later took what had been acknowledged, and no member could read."""
    shard = ShareShard()
    alter(shard, {0: 7})
    begun = shard.run(shard.core.share_admin.begin_offsets_deletion(GROUP, ["t"]))
    with pytest.raises(ApiError) as refused:
        alter(shard, {0: 9})
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if is_answered:
        shard.delete(begun.request)
    else:
        shard.advance(30_000)
    assert alter(shard, {0: 9}) == {0: ErrorCode.NONE}
    assert shard.starts("t") == {0: 9}


def test_a_group_is_deleted_after_its_states() -> None:
    shard = ShareShard(topics={"t": 2})
    member = ShareMember(shard, "a")
    settle(shard, [member])
    with pytest.raises(ApiError) as refused:
        shard.core.share_admin.begin_deletion(GROUP)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    member.heartbeat(member_epoch=-1)
    request = shard.run(shard.core.share_admin.begin_deletion(GROUP))
    assert len(request.partitions) == 2
    shard.delete(request)
    assert shard.run(shard.core.share_admin.begin_deletion(GROUP)) is None
    shard.run(shard.core.admin.delete_group(GROUP))
    assert GROUP not in shard.core.groups
    assert GROUP not in shard.reloaded().core.groups
    with pytest.raises(ApiError):
        shard.core.share_admin.describe(GROUP)


def test_a_group_is_deleted_whose_topic_was_deleted_while_nobody_coordinated_it() -> None:
    shard = ShareShard(topics={"t": 2, "u": 1})
    member = ShareMember(shard, "a", ["t", "u"])
    settle(shard, [member])
    gone = shard.topics.by_name("t")
    assert gone is not None
    shard.set_topics(t=0)
    member.heartbeat(member_epoch=-1)
    request = shard.run(shard.core.share_admin.begin_deletion(GROUP))
    assert len(request.partitions) == 1 and gone.id not in {key.topic_id for key in request.partitions}
    shard.delete(request)
    shard.run(shard.core.admin.delete_group(GROUP))
    assert GROUP not in shard.core.groups


def test_a_topic_that_is_deleted_leaves_the_group() -> None:
    shard = ShareShard(topics={"t": 2, "u": 1})
    member = ShareMember(shard, "a", ["t", "u"])
    settle(shard, [member])
    gone = shard.topics.by_name("t")
    assert gone is not None
    shard.set_topics(t=0)
    shard.run(shard.core.on_topics_deleted([("t", gone.id)]))
    assert [topic.name for topic in shard.share_group.states.initialized.values()] == ["u"]
    settle(shard, [member])
    assert member.partitions == {("u", 0)}


def test_a_topic_that_was_deleted_while_nobody_coordinated_the_group_begins_no_epochs() -> None:
    shard = ShareShard(topics={"t": 2})
    member = ShareMember(shard, "a")
    settle(shard, [member])
    shard.set_topics(t=0)
    shard.set_topics(t=3)
    settle(shard, [member])
    assert member.partitions == everything("t", 3)


def test_a_load_restores_the_group_and_begins_again_what_was_under_way() -> None:
    shard = ShareShard(topics={"t": 3})
    members = [ShareMember(shard, "a"), ShareMember(shard, "b")]
    settle(shard, members)
    shard.set_topics(t=4)
    for member in members:
        member.heartbeat()
    assert shard.core.share.take_wanted()  # and the coordinator dies
    fresh = shard.reloaded()
    assert state_of(fresh) == state_of(shard)
    for member in members:
        member.shard = fresh
    settle(fresh, members)
    assert fresh.starts("t") == {0: -1, 1: -1, 2: -1, 3: 0}
    assert members[0].partitions | members[1].partitions == everything("t", 4)
    fresh.advance(45_001)
    assert not fresh.share_group.members  # sessions count from the load on
