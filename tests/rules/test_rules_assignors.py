"""Answers of assignors: what a group can have, and what it cannot, in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.rules import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerTopic,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    Task,
    Tasks,
    TopicPartition,
)
from kbroker.rules.assignors import BadAssignment, checked_partitions, checked_tasks

NOTHING: frozenset[Any] = frozenset()


def streams_member(process: str = "p") -> StreamsMember:
    return StreamsMember(process, None, None, {}, NOTHING, NOTHING, NOTHING, {}, {})


STREAMS = StreamsGroup(
    {"a": streams_member(), "b": streams_member()},
    {"0": Subtopology(2, True, ("in",)), "1": Subtopology(1, False, ("other",))},
    1,
    (),
)
ALL = {Task("0", 0), Task("0", 1), Task("1", 0)}
CONSUMERS = ConsumerGroup(
    {"a": ConsumerMember(None, None, {"t", "u"}, NOTHING), "b": ConsumerMember(None, None, {"t"}, NOTHING)},
    {"t": ConsumerTopic((0, 1), ()), "u": ConsumerTopic((0,), ())},
)


def test_tasks_may_be_plain_tuples_in_any_collection() -> None:
    assert STREAMS.tasks == sorted(ALL)
    answer = {"a": Tasks([("0", 0), ("1", 0)], {("0", 1)}), "b": Tasks(iter([Task("0", 1)]))}
    assert checked_tasks(STREAMS, answer) == {
        "a": Tasks({Task("0", 0), Task("1", 0)}, {Task("0", 1)}),
        "b": Tasks({Task("0", 1)}, set()),
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "a value of type NoneType, and no mapping"),
        ({"a": ALL}, "member a has a value of type set, and no Tasks"),
        ({"c": Tasks(ALL)}, "there is no member c"),
        ({5: Tasks(ALL)}, "there is no member 5"),
        ({"a": Tasks({("0", 0), ("1", 0)})}, "task 0-1 is active with nobody"),
        ({"a": Tasks()}, "task 0-0 is active with nobody, like 2 more"),
        ({"a": Tasks(ALL), "b": Tasks({("0", 1)})}, "task 0-1 is active with a and with b"),
        ({"a": Tasks(ALL | {("0", 2)})}, "there is no task 0-2, which a is to have"),
        ({"a": Tasks(ALL | {("2", 0)})}, "there is no task 2-0"),
        ({"a": Tasks([*ALL, ("0", 1)])}, "task 0-1 is there twice with a"),
        ({"a": Tasks(ALL, {("0", 1)})}, "task 0-1 is active and standby with a"),
        ({"a": Tasks(ALL), "b": Tasks((), {("1", 0)})}, "task 1-0 has no state, and a standby with b"),
        ({"a": Tasks(ALL | {("0", "1")})}, "an entry of type tuple, and no task"),  # type: ignore[arg-type]
        ({"a": Tasks("ab")}, "a value of type str, and no set of tasks"),  # type: ignore[arg-type]
        ({"a": Tasks(5)}, "a value of type int, and no set of tasks"),  # type: ignore[arg-type]
    ],
)
def test_an_assignment_of_tasks_that_cannot_be(answer: Any, said: str) -> None:
    with pytest.raises(BadAssignment) as caught:
        checked_tasks(STREAMS, answer)
    assert said in str(caught.value)


@given(st.lists(st.sampled_from(["a", "b"]), min_size=3, max_size=3), st.sets(st.sampled_from(sorted(ALL))))
def test_any_division_of_the_tasks_is_taken(owners: list[str], dropped: set[Task]) -> None:
    parts: dict[str, set[Task]] = {"a": set(), "b": set()}
    for task, owner in zip(STREAMS.tasks, owners, strict=True):
        parts[owner].add(task)
    answer = {member: Tasks(tasks - dropped) for member, tasks in parts.items()}
    if dropped:
        with pytest.raises(BadAssignment, match="active with nobody"):
            checked_tasks(STREAMS, answer)
    else:
        assert {member: set(tasks.active) for member, tasks in checked_tasks(STREAMS, answer).items()} == parts


def test_partitions() -> None:
    answer = {"a": {("u", 0)}, "b": [("t", 0), TopicPartition("t", 1)]}
    assert checked_partitions(CONSUMERS, answer)["b"] == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert len(CONSUMERS.partitions) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "a value of type list, and no mapping"),
        ({"a": CONSUMERS.partitions, "b": [("t", 1)]}, "partition t-1 is a's and b's"),
        ({"b": CONSUMERS.partitions}, "partition u-0 is b's, which has not subscribed"),
        ({"a": [("t", 0), ("u", 0)]}, "partition t-1 is nobody's"),
        ({"a": [*CONSUMERS.partitions, ("v", 0)]}, "there is no partition v-0"),
        ({"a": None}, "a value of type NoneType, and no set of partitions"),
        ({"a": ["t-0"]}, "an entry of type str, and no partition"),
    ],
)
def test_an_assignment_of_partitions_that_cannot_be(answer: Any, said: str) -> None:
    with pytest.raises(BadAssignment) as caught:
        checked_partitions(CONSUMERS, answer)
    assert said in str(caught.value)


def test_members_of_share_groups_may_have_the_same_partitions() -> None:
    answer = {"a": CONSUMERS.partitions, "b": [("t", 1)]}
    assert checked_partitions(CONSUMERS, answer, is_shared=True)["b"] == {TopicPartition("t", 1)}
    with pytest.raises(BadAssignment, match="nobody"):
        checked_partitions(CONSUMERS, {"b": [("t", 1)]}, is_shared=True)
