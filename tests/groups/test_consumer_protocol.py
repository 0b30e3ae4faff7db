"""KIP-848 groups, heartbeat by heartbeat (Kafka's GroupMetadataManager, its consumer half)."""

from __future__ import annotations

import pytest

from kbroker.config import GroupConfig
from kbroker.cores.groups.consumer_group import MemberState
from kbroker.cores.groups.topics import TopicMetadata, group_hash, topic_hash
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.consumer_groups import HeartbeatTopicPartitions
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
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.groups.consumer_harness import Consumer, ConsumerShard, settle, topic_id
from tests.groups.harness import GROUP


def refused(consumer: Consumer, **fields: object) -> ErrorCode:
    """The error that a request with these fields gets."""
    assert consumer.send(**fields) is None  # type: ignore[arg-type]
    return consumer.error


def everything(topic: str = "t", partitions: int = 6) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(partitions)}


# -- reconciliation --------------------------------------------------------------------------------


def test_first_member_gets_everything() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="a")
    response = consumer.heartbeat()
    assert response is not None
    assert (response.member_epoch, response.heartbeat_interval_ms, response.member_id) == (2, 5_000, "a")
    assert consumer.partitions == everything()
    assert shard.group.state.value == "Stable"


def test_partitions_move_only_when_given_up() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    a.heartbeat()
    shard.advance(1_000)
    b.heartbeat()
    assert (b.epoch, b.partitions) == (3, set())
    assert shard.group.state.value == "Reconciling"
    # Told to revoke, `a` stays in its epoch until it says that it has.
    response = a.heartbeat()
    assert response is not None and response.member_epoch == 2
    assert len(a.partitions) == 3
    b.heartbeat(full=False)
    assert b.partitions == set()
    assert a.heartbeat() is not None and a.epoch == 3
    b.heartbeat(full=False)
    assert len(b.partitions) == 3 and not a.partitions & b.partitions
    assert shard.group.state.value == "Stable"
    # Nothing new: no assignment in the answer, nothing in the log.
    written = len(shard.log)
    quiet = a.heartbeat(full=False)
    assert quiet is not None and quiet.assignment is None and len(shard.log) == written


def test_everybody_leaves() -> None:
    shard = ConsumerShard()
    consumers = [Consumer(shard, member_id=name) for name in "abc"]
    settle(shard, consumers)
    response = consumers[0].leave()
    assert response is not None and response.member_epoch == -1
    settle(shard, consumers[1:])
    assert sorted(len(consumer.partitions) for consumer in consumers[1:]) == [3, 3]
    for consumer in consumers[1:]:
        consumer.leave()
    assert shard.group.state.value == "Empty"


def test_nobody_waits_for_the_target_of_an_empty_group() -> None:
    """As Kafka 4.4 has it: the last to leave takes the target's time along."""
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    a.heartbeat()
    shard.advance(1_000)
    b.heartbeat()
    a.leave()
    assert (shard.group.group_epoch, shard.group.assignment_epoch) == (4, 3)
    b.leave()
    assert (shard.group.group_epoch, shard.group.assignment_epoch) == (5, 5)
    again = Consumer(shard, member_id="c")
    again.heartbeat()
    assert (again.epoch, again.partitions) == (6, everything())


def test_a_new_target_waits_for_the_assignment_interval() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    a.heartbeat()
    b.heartbeat()
    assert (b.epoch, shard.group.group_epoch, shard.group.assignment_epoch) == (2, 3, 2)
    assert shard.group.state.value == "Assigning"
    shard.advance(999)
    b.heartbeat()
    assert b.epoch == 2
    shard.advance(1)
    b.heartbeat()
    assert b.epoch == 3


@pytest.mark.parametrize("by_regex", [False, True])
def test_the_times_of_a_coordinator_whose_clock_was_ahead_keep_nobody_waiting(by_regex: bool) -> None:
    """They are stored with the target, and with what regular expressions match."""
    shard = ConsumerShard()
    shard.now_ms += 3_600_000
    a = Consumer(shard, member_id="a", regex="t|u" if by_regex else None)
    settle(shard, [a])
    assert a.partitions == everything()
    shard.now_ms -= 3_600_000
    shard = a.shard = shard.reloaded()
    b = Consumer(shard, member_id="b", regex="t.*" if by_regex else None)
    settle(shard, [a, b])
    assert len(b.partitions) == 3
    assert a.partitions | b.partitions == everything()


def test_no_interval_makes_each_target_at_once() -> None:
    shard = ConsumerShard()
    shard.group_config_value = GroupConfig(45_000, 5_000, 0)
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    a.heartbeat()
    b.heartbeat()
    assert b.epoch == 3


def test_unsubscribing_takes_the_partitions_before_there_is_a_new_target() -> None:
    shard = ConsumerShard(topics={"t": 2, "u": 2})
    a = Consumer(shard, member_id="a", topics=["t", "u"])
    a.heartbeat()
    a.topics = ["u"]
    response = a.heartbeat()
    assert response is not None and response.member_epoch == 2
    assert a.partitions == everything("u", 2)
    assert shard.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    shard.advance(1_000)
    settle(shard, [a])
    assert (a.epoch, a.partitions) == (3, everything("u", 2))


def test_the_majority_chooses_the_assignor() -> None:
    shard = ConsumerShard()
    shard.group_config_value = GroupConfig(45_000, 5_000, 0)
    consumers = [Consumer(shard, member_id=name, assignor="range") for name in "abc"]
    consumers[0].assignor = "uniform"
    consumers[0].heartbeat()
    assert shard.core.admin.describe_consumer_group(GROUP).assignor_name == "uniform"
    settle(shard, consumers)
    assert shard.core.admin.describe_consumer_group(GROUP).assignor_name == "range"
    assert [sorted(consumer.partitions) for consumer in consumers] == [
        [("t", 0), ("t", 1)],
        [("t", 2), ("t", 3)],
        [("t", 4), ("t", 5)],
    ]


def test_another_assignor_makes_another_target() -> None:
    """Kafka 4.4: a member's choice counts from its heartbeat on, not from the next change of the group."""
    shard = ConsumerShard()
    shard.group_config_value = GroupConfig(45_000, 5_000, 0)
    consumer = Consumer(shard, member_id="a", assignor="uniform")
    consumer.heartbeat()
    epoch = shard.group.group_epoch
    consumer.assignor = "range"
    consumer.heartbeat()
    assert (shard.group.group_epoch, shard.group.assignment_epoch) == (epoch + 1, epoch + 1)
    consumer.heartbeat()
    assert shard.group.group_epoch == epoch + 1


# -- epochs ----------------------------------------------------------------------------------------


def test_epochs_that_are_not_the_members() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a")
    a.heartbeat()
    assert refused(a, member_epoch=7, topic_partitions=None) is ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (7)" in (a.message or "")
    assert refused(a, member_epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(a, member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(a, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(a, group_id="other", member_epoch=-1) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_lost_reply_is_asked_for_again() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    settle(shard, [a])
    shard.advance(1_000)
    settle(shard, [a, b])
    b.leave()
    shard.advance(1_000)
    epoch = a.epoch
    assert a.send() is not None  # lost: `a` stays in the epoch that it knows
    assert shard.group.members["a"].member_epoch > epoch
    again = a.heartbeat()
    assert again is not None and again.member_epoch > epoch and a.partitions == everything()
    # Only with nothing but what it should have.
    stranger = [HeartbeatTopicPartitions(topic_id=topic_id("x"), partitions=[0])]
    assert refused(a, member_epoch=epoch, topic_partitions=stranger) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(a, member_epoch=epoch, topic_partitions=None) is ErrorCode.FENCED_MEMBER_EPOCH


# -- time ------------------------------------------------------------------------------------------


def test_a_silent_member_loses_its_place() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    settle(shard, [a, b])
    shard.advance(30_000)
    b.heartbeat(full=False)
    shard.advance(20_000)
    assert set(shard.group.members) == {"b"}
    settle(shard, [b])
    assert b.partitions == everything()
    assert a.heartbeat() is None and a.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_its_own_times() -> None:
    shard = ConsumerShard()
    shard.group_config_value = GroupConfig(60_000, 15_000, 1_000)
    a = Consumer(shard, member_id="a")
    response = a.heartbeat()
    assert response is not None and response.heartbeat_interval_ms == 15_000
    shard.advance(59_000)
    assert "a" in shard.group.members
    shard.advance(1_000)
    assert not shard.group.members


def test_who_does_not_give_up_in_time_is_fenced() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a", rebalance_timeout_ms=10_000)
    b = Consumer(shard, member_id="b")
    a.heartbeat()
    shard.advance(1_000)
    b.heartbeat()
    a.send()  # told to revoke
    for _ in range(9):
        shard.advance(1_000)
        a.send(full=False)  # alive, but it keeps what it has
        b.heartbeat(full=False)
    assert "a" in shard.group.members and not b.partitions
    shard.advance(1_000)
    assert set(shard.group.members) == {"b"}


@pytest.mark.parametrize("says_so", [True, False])
def test_a_member_whose_end_cannot_be_stored_is_out_later(says_so: bool) -> None:
    shard = ConsumerShard()
    gone, stays = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    settle(shard, [gone, stays])
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    if says_so:
        gone.send(full=False, member_epoch=-1)
    for _ in range(3):
        shard.advance(30_000)
        stays.send(full=False)
    assert set(shard.group.members) == {"a", "b"}
    shard.fail_appends = None
    shard.advance(45_000 if says_so else 500)
    assert "a" not in shard.group.members
    assert shard.core._consumer.timers._queue._deadline.keys() <= {("session", GROUP, "b")}


def test_who_does_not_give_up_is_fenced_once_that_can_be_stored() -> None:
    shard = ConsumerShard()
    stubborn = Consumer(shard, member_id="a", rebalance_timeout_ms=10_000)
    stubborn.heartbeat()
    shard.advance(1_000)
    Consumer(shard, member_id="b").heartbeat()
    stubborn.send()
    shard.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(11):
        shard.advance(1_000)
        stubborn.send(full=False)
    assert "a" in shard.group.members
    shard.fail_appends = None
    shard.advance(500)
    assert set(shard.group.members) == {"b"}


def test_timers_begin_anew_after_a_reload() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a", rebalance_timeout_ms=10_000), Consumer(shard, member_id="b")
    a.heartbeat()
    shard.advance(1_000)
    b.heartbeat()
    a.send()
    fresh = shard.reloaded()
    fresh.advance(9_999)
    assert set(fresh.group.members) == {"a", "b"}
    fresh.advance(1)
    assert set(fresh.group.members) == {"b"}
    fresh.advance(35_000)
    assert not fresh.group.members


# -- static members --------------------------------------------------------------------------------


def test_a_static_member_comes_back_under_another_id() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a", instance_id="one"), Consumer(shard, member_id="b")
    settle(shard, [a, b])
    had, group_epoch = a.partitions, shard.group.group_epoch
    a.leave(for_a_while=True)
    assert shard.group.members["a"].member_epoch == -2
    again = Consumer(shard, member_id="c", instance_id="one")
    response = again.heartbeat()
    assert response is not None and again.partitions == had
    assert shard.group.group_epoch == group_epoch and set(shard.group.members) == {"b", "c"}
    # The old id is nobody's now.
    assert refused(a, member_epoch=group_epoch, member_id="a") is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_that_is_in_use() -> None:
    shard = ConsumerShard()
    a, b = (Consumer(shard, member_id=name, instance_id="one") for name in "ab")
    a.heartbeat()
    assert refused(b) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused(b, member_epoch=2) is ErrorCode.FENCED_INSTANCE_ID
    assert refused(b, member_epoch=-1) is ErrorCode.FENCED_INSTANCE_ID
    assert refused(b, instance_id="two", member_epoch=2) is ErrorCode.UNKNOWN_MEMBER_ID
    a.leave()
    assert b.heartbeat() is not None


def test_a_static_member_joins_again_when_it_has_heard_nothing() -> None:
    """It was told that another one has its instance id, and Kafka's clients end then."""
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a", instance_id="one")
    a.send()
    a.heartbeat()
    assert (a.error, a.partitions) == (ErrorCode.NONE, everything())


def test_a_static_member_that_stays_away_is_out() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a", instance_id="one")
    a.heartbeat()
    a.leave(for_a_while=True)
    shard.advance(45_000)
    assert not shard.group.members and not shard.group.static_members


# -- limits ----------------------------------------------------------------------------------------


def test_a_full_group() -> None:
    shard = ConsumerShard(consumer_max_size=1)
    a = Consumer(shard, member_id="a", instance_id="one")
    a.heartbeat()
    assert refused(Consumer(shard, member_id="b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.heartbeat() is not None
    a.leave(for_a_while=True)
    assert Consumer(shard, member_id="c", instance_id="one").heartbeat() is not None


# -- topics ----------------------------------------------------------------------------------------


def test_more_partitions_are_noticed() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    shard.set_topics(t=8, other=3)
    settle(shard, [a])
    assert a.partitions == everything(partitions=8)
    epoch = shard.group.group_epoch
    shard.set_topics(other=5)
    settle(shard, [a])
    assert shard.group.group_epoch == epoch


def test_a_topic_is_made_again() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    shard.set_topics(t=0)
    settle(shard, [a])
    assert a.partitions == set()
    shard.set_topics(t=2)
    settle(shard, [a])
    assert a.partitions == everything(partitions=2)


def test_the_hash_of_topics_is_kafkas() -> None:
    # As Apache Kafka 4.3.1 stored it for a group of this topic.
    topic = TopicMetadata("topic-d0cb6d2f", Uuid(bytes.fromhex("a8cf68ff296a44f1a64605223ee480a1")), 2)
    assert group_hash([(topic.name, topic_hash(topic))]) == 5477812611848686624
    assert group_hash([]) == 0
    racks = TopicMetadata(topic.name, topic.id, 2, (("a",), ("a", "b")))
    assert topic_hash(racks) != topic_hash(topic)


# -- regular expressions ---------------------------------------------------------------------------


def test_a_regular_expression_is_resolved_after_the_join() -> None:
    shard = ConsumerShard(topics={"red": 2, "reed": 1, "blue": 3})
    a = Consumer(shard, member_id="a", topics=[], regex="re+d")
    a.heartbeat()
    assert a.partitions == set()
    settle(shard, [a])
    assert a.partitions == everything("red", 2) | everything("reed", 1)
    described = shard.core.admin.describe_consumer_group(GROUP)
    assert described.members[0].subscribed_topic_regex == "re+d"


def test_new_topics_are_matched_ten_seconds_later_at_most() -> None:
    shard = ConsumerShard(topics={"red": 2})
    a = Consumer(shard, member_id="a", topics=[], regex="re+d")
    settle(shard, [a])
    shard.set_topics(reed=1)
    for _ in range(5):
        a.heartbeat()
        shard.advance(1_000)
    assert a.partitions == everything("red", 2)
    shard.advance(10_000)
    a.heartbeat()  # begins to match; the next one brings what was found
    settle(shard, [a])
    assert a.partitions == everything("red", 2) | everything("reed", 1)


def test_a_bad_regular_expression() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a", topics=[], regex="(")
    assert refused(a) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert GROUP not in shard.core.groups


def test_the_last_subscriber_takes_its_regular_expression_along() -> None:
    shard = ConsumerShard(topics={"red": 2, "t": 1})
    a = Consumer(shard, member_id="a", topics=[], regex="red")
    b = Consumer(shard, member_id="b", topics=["t"])
    settle(shard, [a, b])
    assert set(shard.group.resolved_regexes) == {"red"}
    a.leave()
    assert not shard.group.resolved_regexes and not shard.group.is_subscribed_to("red")
    b.regex = "red"
    settle(shard, [b])
    shard.advance(15_000)
    settle(shard, [b])
    assert b.partitions == everything("red", 2) | everything("t", 1)
    b.regex = ""
    settle(shard, [b])
    assert b.partitions == everything("t", 1) and not shard.group.resolved_regexes


# -- offsets ---------------------------------------------------------------------------------------


def commit(shard: ConsumerShard, consumer: Consumer | None, *, epoch: int = -1, version: int = 9) -> ErrorCode:
    """Commit partition 0 as the consumer with that epoch."""
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="" if consumer is None else consumer.member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=topic_id("t"),
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    try:
        response = shard.run(shard.core.commit_offsets(request, version, shard.now_ms))
    except ApiError as error:
        return error.code
    return ErrorCode(response.topics[0].partitions[0].error_code)


def fetch(shard: ConsumerShard, member_id: str | None, epoch: int) -> ErrorCode | int:
    """The committed offset of partition 0, or the error."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=topics)
    try:
        return shard.core.fetch_offsets(request, {}).topics[0].partitions[0].committed_offset
    except ApiError as error:
        return error.code


def test_commits_by_epoch() -> None:
    shard = ConsumerShard(topics={"t": 1})
    assert commit(shard, None, epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(shard, None, epoch=3, version=8) is ErrorCode.ILLEGAL_GENERATION
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    assert commit(shard, a, epoch=a.epoch) is ErrorCode.NONE
    assert commit(shard, a, epoch=a.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(shard, a, epoch=a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(shard, None, epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    # The epoch moves on without taking the partition: what was read in the older one may be committed.
    Consumer(shard, member_id="b").heartbeat()
    settle(shard, [a])
    assert a.epoch == 3
    assert commit(shard, a, epoch=2) is ErrorCode.NONE
    assert commit(shard, a, epoch=1) is ErrorCode.STALE_MEMBER_EPOCH
    a.leave()
    assert commit(shard, a, epoch=3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches_by_epoch() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    commit(shard, a, epoch=a.epoch)
    assert fetch(shard, "a", a.epoch) == 7
    assert fetch(shard, None, -1) == 7
    assert fetch(shard, "a", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(shard, "b", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_deleting_offsets_and_groups() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    commit(shard, a, epoch=a.epoch)
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    response = shard.run(shard.core.delete_offsets(request))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
        shard.core.admin.delete_group(GROUP)
    a.leave()
    assert fetch(shard, None, -1) == 7
    shard.run(shard.core.admin.delete_group(GROUP))
    assert list(shard.core.admin.list_groups((), ())) == [] == list(shard.reloaded().core.admin.list_groups((), ()))
    assert fetch(shard, None, -1) == -1


def test_offsets_of_topics_that_are_read_do_not_expire() -> None:
    shard = ConsumerShard(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    a = Consumer(shard, member_id="a")
    settle(shard, [a])
    commit(shard, a, epoch=a.epoch)
    for _ in range(10):
        shard.advance(20_000)
        a.heartbeat(full=False)
    assert fetch(shard, None, -1) == 7
    a.leave()
    shard.advance(20_000)
    assert GROUP not in shard.core.groups, "neither members nor offsets"


def test_lists_and_descriptions() -> None:
    shard = ConsumerShard()
    a = Consumer(shard, member_id="a", instance_id="one")
    settle(shard, [a])
    (listed,) = shard.core.admin.list_groups(("stable",), ("consumer",))
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("consumer", "Stable", "consumer")
    assert list(shard.core.admin.list_groups((), ("classic",))) == []
    described = shard.core.admin.describe_consumer_group(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.member_type) == ("a", "one", 1)
    assert member.client_host == "/127.0.0.1"
    assert member.assignment.topic_partitions[0].partitions == list(range(6))
    classic = shard.core.admin.describe_group(GROUP, 6)
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "not a classic group" in (classic.error_message or "")
    assert shard.core.admin.describe_group(GROUP, 5).group_state == "Dead"
