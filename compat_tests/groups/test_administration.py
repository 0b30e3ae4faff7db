"""Groups and their offsets as administrators see them, through librdkafka's and kafka-python's admin clients."""

from __future__ import annotations

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.groups import hosts
from compat_tests.groups.conftest import Joining, Restart, Topics
from compat_tests.groups.hosts import KINDS, await_that
from tests.patience import LONG, eventually

CONFLUENT = KINDS["confluent-kafka"]


@pytest.mark.parametrize("kind", [CONFLUENT, KINDS["confluent-kafka-consumer"]], ids=lambda kind: kind.protocol)
@pytest.mark.nodes(3)
def test_describe_and_list_through_confluent(
    kind: hosts.Kind, has_modern_groups: bool, group: str, topic: str, admin: AdminClient, join: Joining
) -> None:
    if kind.is_modern and not has_modern_groups:
        pytest.skip("the broker does not serve ConsumerGroupHeartbeat")
    member = join(kind, topic, client_id="some-client")
    await_that(lambda: len(member.owned) == 4, "all partitions", [member])
    described = admin.describe_consumer_groups([group])[group].result(LONG)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert not described.is_simple_consumer_group
    assert described.partition_assignor == ("uniform" if kind.is_modern else "range")
    (seen,) = described.members
    assert (seen.client_id, seen.host, seen.member_id) == ("some-client", "/127.0.0.1", member.call("member_id"))
    assert sorted(each.partition for each in seen.assignment.topic_partitions) == [0, 1, 2, 3]
    own, other = confluent_kafka.ConsumerGroupType.CLASSIC, confluent_kafka.ConsumerGroupType.CONSUMER
    if kind.is_modern:
        own, other = other, own
        assert described.type == own
        target = seen.target_assignment.topic_partitions
        assert sorted(each.partition for each in target) == [0, 1, 2, 3]

    def listed(**filters: object) -> set[str]:
        return {each.group_id for each in admin.list_consumer_groups(**filters).result(LONG).valid}

    assert group in listed()
    assert group in listed(states={confluent_kafka.ConsumerGroupState.STABLE})
    assert group not in listed(states={confluent_kafka.ConsumerGroupState.EMPTY})
    assert group in listed(types={own})
    assert group not in listed(types={other})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(LONG)
    assert refused.value.args[0].name() == "NON_EMPTY_GROUP"


@pytest.mark.nodes(3)
def test_offsets_through_confluent(group: str, topic: str, topics: Topics, admin: AdminClient, join: Joining) -> None:
    wanted = [TopicPartition(topic, partition, partition + 1) for partition in range(4)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(LONG)

    def offsets() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        told = admin.list_consumer_group_offsets(asked)[group].result(LONG)
        return {each.partition: each.offset for each in told.topic_partitions}

    assert offsets() == {0: 1, 1: 2, 2: 3, 3: 4}
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 3), TopicPartition(topic, 9)])]
    told = admin.list_consumer_group_offsets(asked)[group].result(LONG).topic_partitions
    assert {each.partition: each.offset for each in told} == {3: 4, 9: confluent_kafka.OFFSET_INVALID}

    def is_empty() -> bool:
        described = admin.describe_consumer_groups([group])[group].result(LONG)
        return bool(described.state == confluent_kafka.ConsumerGroupState.EMPTY)

    assert is_empty()
    member = join(CONFLUENT, topic)
    expected = {record for record in topics.records(topic) if record[2] > record[1]}
    await_that(lambda: set(member.seen) == expected, "the records after the offsets that were set", [member])
    member.close()
    # A client may end before the coordinator has heard of its leaving.
    eventually(is_empty, "the group to be empty")
    admin.delete_consumer_groups([group])[group].result(LONG)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(LONG)
    assert refused.value.args[0].name() == "GROUP_ID_NOT_FOUND"
    assert offsets() == {}


@pytest.mark.nodes(3)
def test_administration_through_kafka_python(
    bootstrap: str, group: str, topic: str, topics: Topics, join: Joining
) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        member = join(KINDS["kafka-python"], topic)
        await_that(lambda: set(member.seen) == topics.records(topic), "every record read", [member])
        member.call("commit")
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        member.close()
        # A client may end before the coordinator has heard of its leaving.
        eventually(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", "the group to be empty")
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


@pytest.mark.nodes(1, 3)
def test_offsets_survive_a_restart_of_the_broker(
    restart: Restart, group: str, topic: str, topics: Topics, admin: AdminClient, join: Joining
) -> None:
    first = join(CONFLUENT, topic)
    await_that(lambda: set(first.seen) == topics.records(topic), "every record read", [first])
    first.call("commit")
    first.close()
    restart()
    asked = [ConsumerGroupTopicPartitions(group)]
    told = admin.list_consumer_group_offsets(asked, request_timeout=LONG)[group].result(LONG)
    assert {each.partition: each.offset for each in told.topic_partitions} == dict.fromkeys(range(4), 5)
