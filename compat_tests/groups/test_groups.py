"""Classic consumer groups through the clients that people use: sharing, taking over, resuming, administration."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.groups.readers import READERS, ConfluentReader, KafkaPythonReader, Reader

ALL = {(partition, offset) for partition in range(4) for offset in range(5)}


def pump(readers: list[Reader], until: Callable[[], bool], what: str, timeout: float = 20) -> None:
    """Poll the members in turn until the condition holds."""
    deadline = time.monotonic() + timeout
    while not until():
        if time.monotonic() > deadline:
            state = [(sorted(reader.assignment()), len(reader.seen)) for reader in readers]
            raise AssertionError(f"not within {timeout} s: {what}; (assignment, records) {state}")
        for reader in readers:
            reader.poll()


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    """librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.fast.interval.ms": 50})


@pytest.fixture
def make_topic(admin: AdminClient, bootstrap: str) -> Callable[..., str]:
    """Make a topic of four partitions with five records in each."""

    def make(prefix: str = "groups", partitions: int = 4) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(20)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for partition in range(partitions):
            for number in range(5):
                producer.produce(name, f"value-{number}".encode(), partition=partition)
        assert producer.flush(20) == 0
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    """Closes what a test opens."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(params=list(READERS))
def join(
    request: pytest.FixtureRequest, bootstrap: str, group: str, opened: contextlib.ExitStack
) -> Callable[..., Reader]:
    """Add a member of the client under test to the test's group."""

    def make(topics: list[str], pattern: str | None = None) -> Reader:
        reader: Reader = READERS[request.param](bootstrap, group, topics, pattern)  # type: ignore[operator]
        close = reader.close
        open_still = [True]

        def close_once() -> None:
            if open_still.pop() if open_still else False:
                close()

        reader.close = close_once  # type: ignore[method-assign]
        opened.callback(close_once)
        return reader

    return make


def test_members_share_the_partitions_and_the_rest_take_over(topic: str, join: Callable[..., Reader]) -> None:
    first = join([topic])
    pump([first], lambda: first.assignment() == {0, 1, 2, 3}, "all partitions to the only member")
    second = join([topic])
    both = [first, second]
    pump(both, lambda: len(first.assignment()) == len(second.assignment()) == 2, "two partitions for each")
    assert first.assignment() | second.assignment() == {0, 1, 2, 3}
    pump(both, lambda: {*first.seen, *second.seen} == ALL, "every record read")
    first.close()
    pump([second], lambda: second.assignment() == {0, 1, 2, 3}, "all partitions to the one that stays")


def test_commit_and_resume(topic: str, join: Callable[..., Reader]) -> None:
    first = join([topic])
    pump([first], lambda: set(first.seen) == ALL, "every record read")
    assert len(first.seen) == len(ALL)
    first.commit()
    first.seek(topic, 1, 3)
    first.seen.clear()
    pump([first], lambda: first.seen == [(1, 3), (1, 4)], "the records after the seek")
    first.seek(topic, 2, 4)
    pump([first], lambda: (2, 4) in first.seen, "the last record again")
    first.commit_offset(topic, 1, 3)
    first.close()
    second = join([topic])
    pump([second], lambda: second.seen == [(1, 3), (1, 4)], "exactly what was not committed")


def test_regular_expression_finds_new_topics(make_topic: Callable[..., str], join: Callable[..., Reader]) -> None:
    prefix = f"regex-{uuid.uuid4().hex[:8]}"
    make_topic(prefix, 1)
    make_topic("other", 1)
    reader = join([], f"^{prefix}-.*")
    pump([reader], lambda: len(set(reader.seen)) == 5, "the records of the topic that matches")
    make_topic(prefix, 3)
    pump([reader], lambda: {(2, offset) for offset in range(5)} <= set(reader.seen), "the later topic read")


def confluent(bootstrap: str, group: str, topic: str, **options: object) -> ConfluentReader:
    return ConfluentReader(bootstrap, group, [topic], **options)


def test_static_member_restarts_without_rebalance(
    bootstrap: str, group: str, topic: str, opened: contextlib.ExitStack
) -> None:
    one = confluent(bootstrap, group, topic, group_instance_id="one")
    two = confluent(bootstrap, group, topic, group_instance_id="two")
    opened.callback(two.close)
    pump([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 2, "two partitions for each")
    had, other, old_id = one.assignment(), two.assignment(), one.member_id()
    rebalances = len(two.assigned), len(two.revoked)
    one.close()
    again = confluent(bootstrap, group, topic, group_instance_id="one")
    opened.callback(again.close)
    pump([again, two], lambda: again.assignment() == had, "the old assignment")
    assert again.member_id() != old_id
    assert two.assignment() == other
    assert (len(two.assigned), len(two.revoked)) == rebalances


def test_a_second_static_member_fences_the_first(
    bootstrap: str, group: str, topic: str, opened: contextlib.ExitStack
) -> None:
    one = confluent(bootstrap, group, topic, group_instance_id="one")
    opened.callback(one.close)
    pump([one], lambda: len(one.assignment()) == 4, "all partitions")
    double = confluent(bootstrap, group, topic, group_instance_id="one")
    opened.callback(double.close)
    pump([double, one], lambda: len(double.assignment()) == 4, "all partitions to the newer one")
    pump([double, one], lambda: any("fenced" in error.lower() for error in one.errors), "the older one to be fenced")


def test_cooperative_members_keep_what_they_need_not_give(
    bootstrap: str, group: str, topic: str, opened: contextlib.ExitStack
) -> None:
    members = []
    for count in (1, 2, 4):
        while len(members) < count:
            member = confluent(bootstrap, group, topic, partition_assignment_strategy="cooperative-sticky")
            opened.callback(member.close)
            members.append(member)
        pump(
            list(members),
            lambda count=count: all(len(member.assignment()) == 4 // count for member in members),  # type: ignore[misc]
            f"{4 // count} partitions for each of {count}",
        )
    # The first gave up two and then one: never one that it has kept.
    given = [partition for lost in members[0].revoked for partition in lost]
    assert sorted([*given, *members[0].assignment()]) == [0, 1, 2, 3]
    assert not any(member.errors for member in members)


def test_incompatible_assignors_are_refused(
    bootstrap: str, group: str, topic: str, opened: contextlib.ExitStack
) -> None:
    one = confluent(bootstrap, group, topic, partition_assignment_strategy="range")
    opened.callback(one.close)
    pump([one], lambda: len(one.assignment()) == 4, "all partitions")
    other = confluent(bootstrap, group, topic, partition_assignment_strategy="roundrobin")
    opened.callback(other.close)
    pump([one, other], lambda: any("INCONSISTENT" in error for error in other.errors), "the refusal")
    assert len(one.assignment()) == 4


def test_describe_and_list_through_confluent(
    bootstrap: str, group: str, topic: str, admin: AdminClient, opened: contextlib.ExitStack
) -> None:
    reader = confluent(bootstrap, group, topic, client_id="some-client")
    opened.callback(reader.close)
    pump([reader], lambda: len(reader.assignment()) == 4, "all partitions")
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert not described.is_simple_consumer_group
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host, member.member_id) == ("some-client", "/127.0.0.1", reader.member_id())
    assert sorted(each.partition for each in member.assignment.topic_partitions) == [0, 1, 2, 3]

    def listed(**filters: object) -> set[str]:
        return {each.group_id for each in admin.list_consumer_groups(**filters).result(20).valid}

    assert group in listed()
    assert group in listed(states={confluent_kafka.ConsumerGroupState.STABLE})
    assert group not in listed(states={confluent_kafka.ConsumerGroupState.EMPTY})
    assert group not in listed(types={confluent_kafka.ConsumerGroupType.CONSUMER})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(20)
    assert refused.value.args[0].name() == "NON_EMPTY_GROUP"


def test_offsets_through_confluent(
    bootstrap: str, group: str, topic: str, admin: AdminClient, opened: contextlib.ExitStack
) -> None:
    wanted = [TopicPartition(topic, partition, partition + 1) for partition in range(4)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(20)

    def offsets() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        told = admin.list_consumer_group_offsets(asked)[group].result(20)
        return {each.partition: each.offset for each in told.topic_partitions}

    assert offsets() == {0: 1, 1: 2, 2: 3, 3: 4}
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 3), TopicPartition(topic, 9)])]
    told = admin.list_consumer_group_offsets(asked)[group].result(20).topic_partitions
    assert {each.partition: each.offset for each in told} == {3: 4, 9: confluent_kafka.OFFSET_INVALID}
    described = admin.describe_consumer_groups([group])[group].result(20)
    assert described.state == confluent_kafka.ConsumerGroupState.EMPTY
    reader = confluent(bootstrap, group, topic)
    expected = {(partition, offset) for partition, offset in ALL if offset > partition}
    pump([reader], lambda: set(reader.seen) == expected, "the records after the offsets that were set")
    reader.close()
    admin.delete_consumer_groups([group])[group].result(20)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(20)
    assert refused.value.args[0].name() == "GROUP_ID_NOT_FOUND"
    assert offsets() == {}


def test_administration_through_kafka_python(bootstrap: str, group: str, topic: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        reader = KafkaPythonReader(bootstrap, group, [topic])
        pump([reader], lambda: set(reader.seen) == ALL, "every record read")
        reader.commit()
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        reader.close()
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
        assert group in {each["group_id"] for each in admin.list_groups()}
        partition = kafka.TopicPartition
        offsets = admin.list_group_offsets([group])[group]
        assert {key.partition: value.offset for key, value in offsets.items()} == dict.fromkeys(range(4), 5)
        admin.alter_group_offsets(group, {partition(topic, 0): kafka.OffsetAndMetadata(2, "why", -1)})
        altered = admin.list_group_offsets([group])[group][partition(topic, 0)]
        assert (altered.offset, altered.metadata) == (2, "why")
        admin.delete_group_offsets(group, [partition(topic, 0), partition(topic, 1)])
        left = admin.list_group_offsets([group])[group]
        assert {key.partition for key in left} == {2, 3}
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    finally:
        admin.close()


def test_offsets_survive_a_restart_of_the_broker(
    broker: object, bootstrap: str, group: str, topic: str, admin: AdminClient
) -> None:
    if not getattr(broker, "can_restart", False):
        pytest.skip("not ours to restart")
    first = confluent(bootstrap, group, topic)
    pump([first], lambda: set(first.seen) == ALL, "every record read")
    first.commit()
    first.close()
    broker.restart()  # type: ignore[attr-defined]
    asked = [ConsumerGroupTopicPartitions(group)]
    told = admin.list_consumer_group_offsets(asked, request_timeout=20)[group].result(20)
    assert {each.partition: each.offset for each in told.topic_partitions} == dict.fromkeys(range(4), 5)
