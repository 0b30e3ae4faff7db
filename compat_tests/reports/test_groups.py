"""Reports about groups: who is a member, at which epoch, and of what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from compat_tests.reports.asked import Asked
from compat_tests.reports.committed import commit, fetched, new_group, stage
from kbroker.sim.classic_group_clients import subscription
from kbroker.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from kbroker.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kbroker.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.patience import eventually

FENCED_EPOCH, UNRELEASED, FENCED_INSTANCE, MAX_SIZE, INCONSISTENT, UNKNOWN_MEMBER = 110, 111, 82, 81, 23, 25


@dataclass
class Member:
    """A member of KIP-848's protocol that has what it was last told to have."""

    asked: Asked
    group: str
    name: str
    instance: str | None = None
    epoch: int = 0
    owned: dict[Any, list[int]] = field(default_factory=dict)

    def beat(self, **fields: Any) -> Any:
        """A heartbeat, with all that it may say if it is the first; the answer."""
        values: dict[str, Any] = {"instance_id": self.instance, **fields}
        if self.epoch == 0:
            values = {"rebalance_timeout_ms": 600_000, **values}
        owned = [HeartbeatTopicPartitions(topic_id=topic, partitions=mine) for topic, mine in self.owned.items()]
        answer = self.asked.ask(
            ConsumerGroupHeartbeatRequest(
                **{
                    "group_id": self.group,
                    "member_id": self.name,
                    "member_epoch": self.epoch,
                    "topic_partitions": owned,
                    **values,
                }
            ),
            1,
        )
        if answer.error_code == 0 and "member_epoch" not in fields:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        """The first heartbeat, for topics by name."""
        answer = self.beat(subscribed_topic_names=list(topics) or None, **fields)
        assert answer.error_code == 0, answer
        return answer

    def leave(self, epoch: int = -1) -> None:
        """The last heartbeat; -2 is a static member's that will come back."""
        answer = self.beat(member_epoch=epoch)
        assert answer.error_code == 0, answer


def told(asked: Asked, group: str) -> Any:
    """The answer of ConsumerGroupDescribe."""
    return asked.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]


def settle(asked: Asked, *members: Member) -> None:
    """Let members beat until their group is stable."""

    def stable() -> bool:
        for each in members:
            answer = each.beat()
            assert answer.error_code == 0, answer
        return bool(told(asked, members[0].group).group_state == "Stable")

    eventually(stable)


def wide(asked: Asked, partitions: int) -> tuple[str, str]:
    """A new group with an offset, or nobody would keep it without members, and a topic of so many partitions."""
    group = new_group(asked)
    topic = asked.made_topic(f"wide-{group}", partitions)
    scout = Member(asked, new_group(asked), "scout")
    scout.join(topic)
    # The coordinator hears of a topic a moment after its leaders.
    eventually(lambda: scout.beat().error_code == 0 and sum(map(len, scout.owned.values())) == partitions)
    scout.leave()
    assert commit(asked, group, topic, 1) == 0
    return group, topic


def test_a_fenced_member_begins_again(asked: Asked) -> None:
    group, topic = wide(asked, 2)
    one = Member(asked, group, "one")
    one.join(topic)
    settle(asked, one)
    epoch = one.epoch
    assert one.beat(member_epoch=epoch + 5).error_code == FENCED_EPOCH
    one.epoch, one.owned = 0, {}
    one.join(topic)
    settle(asked, one)
    assert (one.epoch, sum(map(len, one.owned.values()))) == (epoch, 2)


def test_epochs_of_a_group_that_was_left(asked: Asked) -> None:
    group, topic = wide(asked, 2)
    one = Member(asked, group, "one")
    assert one.join(topic).member_epoch == 2  # epoch 1 is that of a group that has nothing
    settle(asked, one)
    epoch = told(asked, group).group_epoch
    one.leave()
    left = told(asked, group)
    assert (left.group_state, left.group_epoch, left.assignment_epoch) == ("Empty", epoch + 1, epoch + 1)


def test_what_is_being_revoked_is_still_a_members(asked: Asked) -> None:
    group, topic = wide(asked, 4)
    one, two = Member(asked, group, "one"), Member(asked, group, "two")
    one.join(topic)
    settle(asked, one)
    before = one.epoch
    two.join(topic)
    answer = one.beat()
    assert sum(len(each.partitions) for each in answer.assignment.topic_partitions) == 2
    assert answer.member_epoch == before
    found = {
        each.member_id: sorted(at for part in each.assignment.topic_partitions for at in part.partitions)
        for each in told(asked, group).members
    }
    assert found == {"one": [0, 1, 2, 3], "two": []}
    # Another change while it still revokes gives it no other epoch.
    three = Member(asked, group, "three")
    three.join(topic)
    kept, one.owned = one.owned, {topic_id: [0, 1, 2, 3] for topic_id in one.owned}
    assert one.beat().member_epoch == before
    one.owned = kept
    settle(asked, one, two, three)
    assert one.epoch == two.epoch == three.epoch


def test_a_regular_expression_comes_and_goes(asked: Asked) -> None:
    group, topic = wide(asked, 1)
    one = Member(asked, group, "one")
    one.join(subscribed_topic_regex=f"{topic}.*")
    eventually(lambda: one.beat().error_code == 0 and sum(map(len, one.owned.values())) == 1)
    settle(asked, one)
    second = Member(asked, group, "two")
    second.join(subscribed_topic_regex=f"{topic}.*")
    settle(asked, one, second)
    before = told(asked, group).group_epoch
    answer = second.beat(subscribed_topic_regex="")
    assert answer.error_code == 0
    assert told(asked, group).group_epoch == before + 1
    settle(asked, one, second)
    assert (len(one.owned), len(second.owned)) == (1, 0)


def test_a_partition_more_of_a_topic_by_expression(asked: Asked) -> None:
    group, topic = wide(asked, 1)
    one = Member(asked, group, "one")
    one.join(subscribed_topic_regex=topic)
    settle(asked, one)
    asked.delete_topic(topic)
    eventually(lambda: one.beat().error_code == 0 and not any(one.owned.values()))
    asked.made_topic(topic, 3)
    eventually(lambda: one.beat().error_code == 0 and sum(map(len, one.owned.values())) == 3)


def test_a_static_member_comes_back_to_a_full_group(asked: Asked) -> None:
    group, topic = wide(asked, 3)
    members = [Member(asked, group, name, f"instance-{name}") for name in ("a", "b", "c")]
    for each in members:
        each.join(topic)
    settle(asked, *members)
    late = Member(asked, group, "d", "instance-d")
    assert late.beat(subscribed_topic_names=[topic]).error_code == MAX_SIZE
    taken = Member(asked, group, "a2", "instance-a")
    assert taken.beat(subscribed_topic_names=[topic]).error_code == UNRELEASED
    members[0].leave(-2)
    taken.join(topic)
    settle(asked, taken, *members[1:])
    assert [sum(map(len, each.owned.values())) for each in (taken, *members[1:])] == [1, 1, 1]
    assert members[0].beat().error_code == FENCED_INSTANCE


def test_a_static_member_comes_back_with_another_assignor(asked: Asked) -> None:
    group, topic = wide(asked, 2)
    one = Member(asked, group, "one", "instance")
    one.join(topic, server_assignor="uniform")
    settle(asked, one)
    before = told(asked, group)
    assert before.assignor_name == "uniform"
    one.leave(-2)
    two = Member(asked, group, "two", "instance")
    two.join(topic, server_assignor="range")
    settle(asked, two)
    after = told(asked, group)
    assert (after.assignor_name, after.group_epoch) == ("range", before.group_epoch + 1)


def test_an_administrator_removes_a_member_of_the_new_protocol(asked: Asked) -> None:
    group, topic = wide(asked, 2)
    one, two = Member(asked, group, "one"), Member(asked, group, "two", "instance")
    one.join(topic)
    two.join(topic)
    settle(asked, one, two)
    leaving = [
        MemberIdentity(member_id="one"),
        MemberIdentity(member_id="", group_instance_id="instance"),
        MemberIdentity(member_id="nobody"),
    ]
    answer = asked.ask(LeaveGroupRequest(group_id=group, members=leaving), 5)
    assert (answer.error_code, [each.error_code for each in answer.members]) == (0, [0, 0, UNKNOWN_MEMBER])
    assert told(asked, group).group_state == "Empty"
    assert one.beat().error_code == UNKNOWN_MEMBER


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\xff\xff\xff\xfe", b"\0\0\0\0\0\1\xff\xf0", b"\x7f\xff\0"])
def test_a_classic_member_that_nobody_can_read(asked: Asked, metadata: bytes) -> None:
    group, topic = wide(asked, 1)
    one = Member(asked, group, "one")
    one.join(topic)
    joining = join_request(group, metadata)
    answer = asked.ask(joining, 3)
    assert answer.error_code == INCONSISTENT
    assert [each.member_id for each in told(asked, group).members] == ["one"]


def join_request(group: str, metadata: bytes, **fields: Any) -> JoinGroupRequest:
    """JoinGroup of a consumer."""
    values = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **fields}
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    return JoinGroupRequest(group_id=group, protocols=protocols, **values)


def test_the_last_member_of_the_new_protocol_leaves_a_classic_one(asked: Asked) -> None:
    group, topic = wide(asked, 2)
    one = Member(asked, group, "one")
    one.join(topic)
    settle(asked, one)
    joined = asked.ask(join_request(group, subscription(topic)), 3)
    assert joined.error_code == 0
    leaving = [MemberIdentity(member_id="one")]
    assert asked.ask(LeaveGroupRequest(group_id=group, members=leaving), 5).members[0].error_code == 0
    (listed,) = [each for each in asked.ask(ListGroupsRequest(), 5).groups if each.group_id == group]
    assert listed.group_type == "classic"
    described = asked.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    assert [each.member_id for each in described.members] == [joined.member_id]
    beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert asked.ask(beat, 3).error_code == 27
    again = asked.ask(join_request(group, subscription(topic), member_id=joined.member_id), 3)
    assert (again.error_code, again.leader) == (0, joined.member_id)


def test_offsets_of_a_transaction_without_a_members_name(asked: Asked) -> None:
    group, topic = wide(asked, 1)
    one = Member(asked, group, "one")
    one.join(topic)
    settle(asked, one)
    producer = asked.init()
    assert stage(asked, producer, group, topic, 5) == 0
    assert stage(asked, producer, group, topic, 6, member_id="one", generation_id_or_member_epoch=one.epoch) == 0
    stale = stage(asked, producer, group, topic, 7, member_id="one", generation_id_or_member_epoch=one.epoch - 1)
    assert stale == 22
    unknown = stage(asked, producer, group, topic, 7, member_id="two", generation_id_or_member_epoch=one.epoch)
    assert unknown == UNKNOWN_MEMBER
    asked.end(producer, commit=True)
    assert fetched(asked, group, topic, stable=True) == (0, 6)
