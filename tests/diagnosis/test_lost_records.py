"""The reasons why a group gets nothing: its records are gone, or its topic is."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.client import Client, ResponseError
from kbroker.client.groups import CONSUMER, GroupDescription, GroupMember
from kbroker.client.topics import missing_topics
from kbroker.errors import ErrorCode
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.diagnosis.group_watch import ask_lost_records
from kbroker.tools.diagnosis.lost_records import lost_records
from kbroker.types import TopicPartition
from kbroker.wire.messages.metadata import MetadataRequest, MetadataResponseBroker
from tests.client.fake_broker import FakeBroker
from tests.patience import LONG

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record_of(finding: Finding) -> tuple[Any, ...]:
    """The first record that is still there: its partition and offset; nothing without one."""
    return next(((TopicPartition(each.topic, each.partition), each.offset) for each in finding.links), ())


@pytest.mark.parametrize(
    ("committed", "limits"),
    [
        (5, (0, 9)),  # it has records to read
        (5, (5, 9)),
        (9, (0, 9)),  # it has all of them
        (9, (9, 9)),  # and they are gone since
        (None, (0, 9)),
        (None, (4, 9)),
    ],
)
def test_what_is_there_or_was_read_is_not_lost(committed: int | None, limits: tuple[int, int]) -> None:
    assert lost_records({} if committed is None else {ONE: committed}, {ONE: limits}) == []


def test_the_first_records_are_gone() -> None:
    [found] = lost_records({ONE: 4}, {ONE: (12, 20)})
    assert found.text == (
        "orders-0: offsets 4 to 11 are gone, and the group has not committed them: the log begins at offset 12."
    )
    assert (found.severity, *record_of(found)) == (Severity.ERROR, ONE, 12)


def test_a_marker_alone_may_be_gone() -> None:
    [found] = lost_records({ONE: 7}, {ONE: (8, 9)})
    assert found.text == ("orders-0: offset 7 is gone, and the group has not committed it: the log begins at offset 8.")
    assert found.severity == Severity.WARNING and found.advice.startswith("It may be the marker of a transaction alone")
    assert lost_records({ONE: 7, TWO: 6}, {ONE: (8, 9), TWO: (8, 9)})[0].severity == Severity.ERROR


def test_many_partitions_of_a_topic_are_one_reason() -> None:
    many = [TopicPartition("orders", number) for number in range(200)]
    [found] = lost_records(dict.fromkeys(many, 4), dict.fromkeys(many, (12, 20)))
    assert found.text == "orders, 200 partitions: 1,600 offsets are gone, and the group has not committed them."
    assert (found.severity, *record_of(found)) == (Severity.ERROR, ONE, 12)


def test_all_records_are_gone() -> None:
    [found] = lost_records({ONE: 4}, {ONE: (12, 12)})
    assert found.text == (
        "orders-0: nothing is left to read, all that the group's lag of 8 counts is gone:"
        " it is at offset 4, and the log is empty up to 12."
    )
    assert (found.severity, record_of(found)) == (Severity.WARNING, ()) and "next record" in found.advice
    [found] = lost_records({ONE: 4, TWO: 11}, {ONE: (12, 12), TWO: (12, 12)})
    assert found.text.startswith("orders, 2 partitions: nothing is left to read, all that the group's lag of 9")


def test_the_log_ends_before_the_group() -> None:
    """Its topic was made anew, or its log was cut."""
    [found] = lost_records({ONE: 1000}, {ONE: (0, 3)})
    assert found.text == "orders-0: the group is at offset 1,000, and the log ends at offset 3."
    assert (found.severity, *record_of(found)) == (Severity.ERROR, ONE, 0)
    [found] = lost_records({ONE: 1000, TWO: 7}, {ONE: (0, 0), TWO: (2, 3)})
    assert found.text.startswith("orders, 2 partitions: ") and record_of(found) == (TWO, 2)
    [found] = lost_records({ONE: 1000}, {ONE: (0, 0)})
    assert record_of(found) == ()


def test_there_is_nothing_to_read_yet() -> None:
    [found] = lost_records({}, {ONE: (0, 0), TWO: (0, 0)})
    assert found.text == "orders, 2 partitions: there is nothing to read: the logs are empty."
    assert found.severity == Severity.WARNING and found.advice.startswith("Nothing has been written")
    [found] = lost_records({}, {ONE: (5, 5)})
    assert found.advice.startswith("Retention, or somebody, has deleted all")
    # Empty partitions beside others are nothing to tell of.
    assert lost_records({}, {ONE: (0, 0), TWO: (0, 1)}) == lost_records({TWO: 1}, {ONE: (0, 0), TWO: (0, 1)}) == []
    # Nor are those beside one of which nothing is known.
    assert lost_records({}, {ONE: (0, 0), TWO: None}) == lost_records({}, {}) == []


def test_nobody_leads_a_partition() -> None:
    nobody = ResponseError(ErrorCode.LEADER_NOT_AVAILABLE, "partition orders-0")
    first, second = lost_records({ONE: 4, TWO: 4}, {ONE: nobody, TWO: (12, 20)})
    assert first.text == "orders-0: there is no leader: nobody can read or write there."
    assert (first.severity, record_of(first), record_of(second)[0]) == (Severity.ERROR, (), TWO)
    [found] = lost_records({}, {ONE: nobody, TWO: nobody})
    assert found.text.startswith("orders, 2 partitions: there is no leader")
    # Another error is no reason: the user may not see the topic, or it is deleted.
    assert lost_records({}, {ONE: ResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""), TWO: (0, 0)}) == []


def test_a_topic_is_not_there() -> None:
    first, second = lost_records({ONE: 4}, {ONE: (12, 20)}, {"paid": 1})
    assert first.text == "paid: there is no such topic, and 1 member subscribes to it."
    assert first.severity == Severity.ERROR and record_of(second)[0] == ONE
    assert "2 members subscribe" in lost_records({}, {}, {"paid": 2})[0].text


@pytest.mark.parametrize(
    ("subscriptions", "told"),
    [
        ([{"topics": ("new",)}], False),  # all members have left the topic
        ([{"topics": ("new",)}, {"topics": ("new", "old")}], True),
        ([{"topics": ("new",)}, {"topic_regex": "n.*"}], True),  # nobody knows what it reads
        ([{"topics": ("new",)}, {}], True),
        ([], True),
    ],
)
def test_topics_that_all_members_have_left_are_nothing_to_tell_of(
    subscriptions: list[dict[str, Any]], told: bool
) -> None:
    assignment = tuple(TopicPartition(topic, 0) for topic in (("new", "old") if told else ("new",)))
    members = tuple(GroupMember(f"m{i}", None, "c", "h", assignment, **each) for i, each in enumerate(subscriptions))
    group = GroupDescription("g", CONSUMER, "Stable", "consumer", "", 1, members)
    old = TopicPartition("old", 0)
    with Client("127.0.0.1:1") as client:
        found = ask_lost_records(client, group, {old: 4}, {old: (12, 20)})
    assert bool(found) == told


def test_a_topic_is_missing_if_two_brokers_say_so() -> None:
    """A broker that is late does not know of a topic that has just been made."""
    with FakeBroker() as late, FakeBroker() as other:
        both = [MetadataResponseBroker(node_id=i, host="127.0.0.1", port=b.port) for i, b in ((1, late), (2, other))]

        def metadata(unknown: set[str]) -> Any:
            def answer(request: Any, version: int) -> Any:
                response = late.metadata(request, version)
                response.brokers = both
                for topic in response.topics:
                    topic.error_code = 3 if topic.name in unknown else 0
                return response

            return answer

        late.answers[MetadataRequest] = metadata({"new", "gone"})
        other.answers[MetadataRequest] = metadata({"gone"})
        del late.versions[75]  # DescribeTopicPartitions
        with Client(late.bootstrap, timeout=LONG) as client:
            assert missing_topics(client, ["gone", "new", "t"]) == {"gone"}
