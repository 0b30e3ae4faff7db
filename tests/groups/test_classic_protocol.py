"""Rebalances of the classic protocol, request by request (Kafka's ClassicGroup rules)."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.groups.classic_join import _uuid_text
from kbroker.cores.groups.offset_requests import EXPIRED_TOGETHER
from kbroker.cores.groups.settings import GroupSettings
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tests.groups.harness import GROUP, Member, Shard, settle


def commit(
    shard: Shard, offset: int, *, member: Member | None = None, topic: str = "t", metadata: str = "", group: str = GROUP
) -> int:
    """Commit partition 0 of a topic; the partition's error."""
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member.member_id if member else "",
        generation_id_or_member_epoch=member.generation_id if member else -1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    response = shard.run(shard.core.commit_offsets(request, 9, shard.now_ms))
    return int(response.topics[0].partitions[0].error_code)


def committed(shard: Shard) -> dict[tuple[str, int], int]:
    """Every offset of the group."""
    group = shard.core.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None), {})
    return {
        (topic.name, each.partition_index): each.committed_offset for topic in group.topics for each in topic.partitions
    }


def stable_group(shard: Shard, count: int = 2, **options: object) -> list[Member]:
    members = [Member(shard, **options) for _ in range(count)]  # type: ignore[arg-type]
    for member in members:
        member.join()
    settle(shard, members)
    assert shard.core.admin.describe_group(GROUP, 6).group_state == "Stable"
    return members


def static_group(shard: Shard) -> tuple[Member, Member]:
    """The leader of a stable group, and its other member."""
    members = [Member(shard, instance_id=f"i{n}") for n in range(2)]
    for member in members:
        member.join()
    settle(shard, members)
    leader, follower = sorted(members, key=lambda member: not member.is_leader)
    return leader, follower


def test_members_of_an_empty_group_wait_for_the_initial_delay() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    first.join()
    shard.advance(2_999)
    assert first.joined is None
    second.join()
    shard.advance(2_999)
    assert first.joined is None and second.joined is None  # the second one made the delay run once more
    shard.advance(2)
    assert first.joined is not None and second.joined is not None
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert {member.member_id for member in first.joined.members} == {first.member_id, second.member_id}
    assert second.joined.members == []


def test_every_member_gets_the_leaders_assignment() -> None:
    shard = Shard()
    members = stable_group(shard, 3)
    for member in members:
        assert member.synced is not None
        assert member.synced.assignment == member.member_id.encode()
        assert member.heartbeat() is ErrorCode.NONE


def test_a_new_member_starts_a_rebalance_that_ends_when_all_are_back() -> None:
    shard = Shard()
    first, second = stable_group(shard)
    third = Member(shard)
    third.join()
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert third.joined is None
    second.join()
    assert third.joined is not None and third.joined.generation_id == 2


def test_a_member_that_does_not_come_back_is_out_after_the_rebalance_timeout() -> None:
    shard = Shard()
    first, second = stable_group(shard, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    third = Member(shard, rebalance_timeout_ms=20_000)
    third.join()
    first.join()
    shard.advance(19_999)
    assert third.joined is None
    shard.advance(1)
    assert third.joined is not None
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    shard = Shard()
    first, second = stable_group(shard)
    for _ in range(3):
        shard.advance(4_000)
        last = first.heartbeat()
    assert last is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rejoin_with_unchanged_metadata_does_not_disturb_a_stable_group() -> None:
    shard = Shard()
    members = stable_group(shard)
    follower = next(member for member in members if not member.is_leader)
    follower.join()
    assert follower.joined is not None and follower.joined.generation_id == 1


def test_the_leader_joining_again_rebalances() -> None:
    shard = Shard()
    members = stable_group(shard)
    leader = next(member for member in members if member.is_leader)
    leader.join()
    assert leader.joined is None


def test_leaving_empties_the_group() -> None:
    shard = Shard()
    (member,) = stable_group(shard, 1)
    assert member.leave() == ErrorCode.NONE
    described = shard.core.admin.describe_group(GROUP, 6)
    assert (described.group_state, described.members) == ("Empty", [])
    assert member.leave() == ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_members_stale_generations_and_foreign_protocols_are_refused() -> None:
    shard = Shard()
    member, _ = stable_group(shard)
    stranger = Member(shard)
    stranger.member_id, stranger.generation_id = "nobody", 1
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    member.generation_id = 7
    assert member.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    connect = Member(shard)
    connect.protocol_type = "connect"
    connect.join()
    assert connect.joined is not None
    assert connect.joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = Member(shard, protocols=("sticky",))
    other.join()
    assert other.joined is not None
    assert other.joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_somebody_joins_while_nobody_is_left_in_the_initial_delay() -> None:
    shard = Shard()
    hasty = Member(shard)
    hasty.join()
    assert hasty.leave() == 0
    assert not shard.core.groups.classic[GROUP].members
    other = Member(shard)
    other.protocol_type = "connect"
    other.join()
    assert other.joined is not None
    assert other.joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member = Member(shard, protocols=("sticky",))
    member.join()
    settle(shard, [member])
    assert member.synced is not None and member.synced.error_code == 0


def test_a_static_member_takes_its_place_back_without_a_rebalance() -> None:
    shard = Shard()
    _, follower = static_group(shard)
    returned = Member(shard, instance_id=follower.instance_id)
    returned.join()
    assert returned.joined is not None
    assert returned.joined.generation_id == 1
    assert returned.member_id != follower.member_id
    assert follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    returned.sync()
    assert returned.synced is not None
    assert returned.synced.assignment == follower.member_id.encode()


def test_the_session_of_a_static_member_that_returned_is_its_own() -> None:
    shard = Shard()
    stays, follower = static_group(shard)
    for member in (stays, follower):
        assert member.heartbeat() is ErrorCode.NONE
    returned = Member(shard, instance_id=follower.instance_id)
    returned.join()
    returned.sync()
    assert returned.heartbeat() is ErrorCode.NONE
    for _ in range(4):
        shard.advance(returned.session_timeout_ms // 2)
        assert stays.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert returned.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_returns_is_told_to_skip_the_assignment() -> None:
    shard = Shard()
    leader, _ = static_group(shard)
    returned = Member(shard, instance_id=leader.instance_id)
    returned.join()
    assert returned.joined is not None
    assert returned.joined.skip_assignment and returned.joined.leader == returned.member_id
    assert len(returned.joined.members) == 2


def test_a_static_replacement_whose_record_is_not_stored_changes_nothing() -> None:
    shard = Shard()
    _, follower = static_group(shard)
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    returned = Member(shard, instance_id=follower.instance_id)
    returned.join()
    assert returned.joined is not None
    assert returned.joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert follower.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("then", ["leaves", "restarts again"])
def test_a_static_replacement_that_is_over_before_its_record_fails(then: str) -> None:
    shard = Shard()
    stays, follower = static_group(shard)
    shard.hold_appends = True
    returned = Member(shard, instance_id=follower.instance_id)
    returned.join()
    (new_id,) = set(shard.core.groups.classic[GROUP].members) - {stays.member_id}
    assert returned.joined is None and new_id != follower.member_id
    if then == "leaves":
        returned.member_id = new_id
        returned.leave()
    else:
        again = Member(shard, instance_id=follower.instance_id)
        again.join()
    shard.let_appends(ErrorCode.REQUEST_TIMED_OUT)
    assert returned.joined is not None and returned.joined.error_code
    left = set(shard.core.groups.classic[GROUP].members) - {stays.member_id}
    assert len(left) == (0 if then == "leaves" else 1)


@pytest.mark.parametrize("error", [None, ErrorCode.REQUEST_TIMED_OUT])
def test_a_static_member_whose_new_id_a_rebalance_told_it_keeps_that_id(error: ErrorCode | None) -> None:
    shard = Shard()
    stays, follower = static_group(shard)
    shard.hold_appends = True
    returned = Member(shard, instance_id=follower.instance_id)
    returned.join()
    assert returned.joined is None
    stays.join()  # the leader, so this is a rebalance, and all are there for it
    assert returned.joined is not None and returned.joined.error_code == 0 and returned.generation_id == 2
    shard.let_appends(error)
    assert stays.joined is not None and stays.is_leader
    returned.sync()
    stays.sync({member.member_id: member.member_id.encode() for member in (stays, returned)})
    assert returned.synced is not None and returned.synced.error_code == 0
    assert returned.synced.assignment == returned.member_id.encode()
    assert returned.heartbeat() is ErrorCode.NONE
    after = shard.reloaded()
    returned.shard = after
    assert returned.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize("error", [None, ErrorCode.REQUEST_TIMED_OUT])
def test_each_of_two_static_joins_at_once_is_told_of_itself(error: ErrorCode | None) -> None:
    shard = Shard()
    stays, follower = static_group(shard)
    shard.hold_appends = True
    first, second = (Member(shard, instance_id=follower.instance_id) for _ in range(2))
    first.join()
    second.join()
    shard.let_appends(error)
    assert first.joined is not None and first.joined.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert second.joined is not None
    if error is None:
        assert second.joined.error_code == 0
        assert second.heartbeat() is ErrorCode.NONE
    else:
        assert second.joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stays.heartbeat() is ErrorCode.NONE


def test_an_assignment_that_is_not_stored_is_not_given() -> None:
    shard = Shard()
    members = [Member(shard), Member(shard)]
    for member in members:
        member.join()
    shard.advance(6_000)
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    leader = next(member for member in members if member.is_leader)
    follower = next(member for member in members if not member.is_leader)
    follower.sync()
    leader.sync({member.member_id: b"x" for member in members})
    for member in members:
        assert member.synced is not None
        assert member.synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    shard = Shard()
    members = [Member(shard, rebalance_timeout_ms=9_000, session_timeout_ms=60_000) for _ in range(2)]
    for member in members:
        member.join()
    shard.advance(6_000)
    leader = next(member for member in members if member.is_leader)
    lazy = next(member for member in members if not member.is_leader)
    leader.sync({member.member_id: b"x" for member in members})
    shard.advance(9_000)
    assert lazy.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_size_limit_refuses_the_one_too_many() -> None:
    shard = Shard(group_max_size=2)
    stable_group(shard, 2)
    third = Member(shard)
    third.join()
    assert third.joined is not None and third.joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_old_clients_join_without_being_asked_for_an_id() -> None:
    shard = Shard()
    member = Member(shard, api_version=3)
    member._send_join()
    shard.advance(6_000)
    assert member.joined is not None and member.joined.error_code == ErrorCode.NONE


def test_a_restart_restores_members_and_offsets() -> None:
    shard = Shard()
    members = stable_group(shard)
    assert commit(shard, 42, member=members[0]) == ErrorCode.NONE
    fresh = shard.reloaded()
    for member in members:
        member.shard = fresh
        assert member.heartbeat() is ErrorCode.NONE
        member.sync()
        assert member.synced is not None and member.synced.assignment == member.member_id.encode()
    assert committed(fresh) == {("t", 0): 42}


def test_a_group_that_is_too_large_when_it_is_loaded_rebalances_down_to_the_limit() -> None:
    shard = Shard(group_max_size=3)
    members = stable_group(shard, 3)
    shard.settings = GroupSettings(group_max_size=2)
    fresh = shard.reloaded()
    for member in members:
        member.shard = fresh
        assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(fresh, 42, member=members[2]) == ErrorCode.NONE, "who is to go commits before"
    for member in members:
        member._send_join()
    refused = members[2].joined
    assert refused is not None and refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    fresh.advance(60_000)  # the rebalance waits for whoever it had, as Kafka's does
    for member in members[:2]:
        assert member.joined is not None and member.joined.error_code == ErrorCode.NONE
        assert member.heartbeat() is ErrorCode.NONE
    assert members[2].heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(fresh) == {("t", 0): 42}


def test_commits_are_checked_against_the_membership() -> None:
    shard = Shard()
    member, _ = stable_group(shard)
    assert commit(shard, 1, member=member) == ErrorCode.NONE
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        commit(shard, 2)  # no member's name while the group has members
    member.generation_id = 9
    with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
        commit(shard, 2, member=member)
    assert committed(shard) == {("t", 0): 1}


def test_a_standalone_consumer_may_commit_to_a_group_without_members() -> None:
    shard = Shard()
    assert commit(shard, 5) == ErrorCode.NONE
    assert commit(shard, 6, metadata="x" * 5_000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed(shard) == {("t", 0): 5}


def test_offsets_of_topics_in_use_are_kept_and_others_expire() -> None:
    shard = Shard(offsets_retention_ms=3_600_000, offsets_retention_check_interval_ms=60_000)
    (member,) = stable_group(shard, 1, session_timeout_ms=600_000)
    commit(shard, 1, member=member)
    commit(shard, 2, member=member, topic="unread")
    for _ in range(70):
        shard.advance(60_000)
        member.heartbeat()
    assert committed(shard) == {("t", 0): 1}
    member.leave()
    shard.advance(3_500_000)
    assert committed(shard) == {("t", 0): 1}  # the hour counts from when the group became empty
    shard.advance(200_000)
    assert committed(shard) == {}
    assert list(shard.core.admin.list_groups((), ())) == []


def test_thousands_of_offsets_that_expire_together_go_in_many_steps() -> None:
    shard = Shard(offsets_retention_ms=3_600_000, offsets_retention_check_interval_ms=600_000)
    groups = [f"g-{number}" for number in range(4 * EXPIRED_TOGETHER)]
    for group in groups:
        commit(shard, 1, group=group)
    shard.now_ms += 3_600_000
    assert commit(shard, 2, group=groups[0]) == ErrorCode.NONE  # this one is used again
    sizes = []
    while (result := shard.core.on_deadline(shard.now_ms)) is not None:
        sizes.append(len(result.records))
        shard.run(result)
        if len(sizes) == 1:
            assert (deadline := shard.core.next_deadline()) is not None and deadline <= shard.now_ms, "there is more"
            commit(shard, 3, group=groups[1])  # and this one, while others go
    assert max(sizes) <= 2 * EXPIRED_TOGETHER
    assert len(sizes) >= 4
    assert {group.group_id for group in shard.core.admin.list_groups((), ())} == set(groups[:2])
    assert shard.core.next_deadline() == shard.now_ms + 600_000


def test_offsets_of_a_topic_that_is_read_cannot_be_deleted() -> None:
    shard = Shard()
    (member,) = stable_group(shard, 1)
    commit(shard, 1, member=member)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    )
    response = shard.run(shard.core.delete_offsets(request))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
        shard.core.admin.delete_group(GROUP)
    member.leave()
    response = shard.run(shard.core.delete_offsets(request))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(shard) == {}
    shard.run(shard.core.admin.delete_group(GROUP))
    assert list(shard.core.admin.list_groups((), ())) == []
    assert list(shard.reloaded().core.admin.list_groups((), ())) == []


@pytest.mark.parametrize("seed", range(3))
def test_fifty_members_coming_and_going_never_share_a_partition(seed: int) -> None:
    """RELIABILITY row 20: in one generation, a partition has one owner; offsets never go back."""
    rng = random.Random(seed)
    shard = Shard(seed=seed, group_initial_rebalance_delay_ms=100)
    members: list[Member] = []
    owners: dict[int, dict[bytes, str]] = {}
    acknowledged = -1
    for step in range(200):
        if len(members) < 50 and (len(members) < 5 or rng.random() < 0.6):
            joiner = Member(shard)
            joiner.join()
            members.append(joiner)
        else:
            gone = members.pop(rng.randrange(len(members)))
            if rng.random() < 0.5:
                gone.leave()
        for member in members:
            reply = member.joined
            if reply is None:
                continue
            error = member.heartbeat()
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                member.member_id = ""
                member.join()
            elif error is ErrorCode.REBALANCE_IN_PROGRESS:
                member.join()
        shard.advance(rng.choice((100, 1_000, 11_000)))
        for member in members:
            if member.is_leader and member.joined is not None and member.joined.members:
                ids = [each.member_id for each in member.joined.members]
                member.sync({member_id: b"p%d" % n for n, member_id in enumerate(ids)})
            elif member.joined is not None:
                member.sync()
        for member in members:
            reply_sync = member.synced
            if reply_sync is not None and not reply_sync.error_code and reply_sync.assignment:
                owner = owners.setdefault(member.generation_id, {})
                assert owner.setdefault(reply_sync.assignment, member.member_id) == member.member_id
                try:
                    if commit(shard, step, member=member) == ErrorCode.NONE:
                        acknowledged = step
                except ApiError:
                    pass
        assert committed(shard).get(("t", 0), -1) == acknowledged
    assert len(owners) > 20


@given(st.integers(0, 2**128 - 1))
def test_ids_of_members_end_in_a_random_uuid(bits: int) -> None:
    assert _uuid_text(bits) == str(uuid.UUID(int=bits, version=4))
