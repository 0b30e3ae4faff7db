"""Large requests are decided in steps, between which others have their turn."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.raft_metadata.controller.topics import create_partitions, create_topics
from kbroker.raft_metadata.image import DIR_LOST
from kbroker.raft_metadata.topics import NewPartitions, NewTopic
from tests.raft_metadata.controller_harness import Harness

MANY = 1000


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.broker(1)
    harness.broker(2)
    return harness


def first_steps(records: Iterable[object]) -> list[object]:
    return list(islice(records, MANY))


def test_replicas_that_a_client_has_chosen_are_judged_one_partition_in_a_step(h: Harness) -> None:
    topic = NewTopic("t", assignments=[(index, (1, 2)) for index in range(MANY)])
    assert first_steps(create_topics(h.view, [topic]).records) == [None] * MANY
    h.assign("t", 1, 2)
    added = NewPartitions("t", MANY + 1, [(2, 1)] * MANY)
    assert first_steps(create_partitions(h.view, [added]).records) == [None] * MANY


def test_one_that_is_wrong_refuses_its_topic(h: Harness) -> None:
    topics = [NewTopic(name, assignments=[(0, (1, 2)), (1, (1, broker))]) for name, broker in (("t", 3), ("u", 2))]
    results = h.apply(create_topics(h.view, topics))
    assert results["t"].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert results["u"].num_partitions == len(h.controller.image.topics.by_name["u"].partitions) == 2
    assert "t" not in h.controller.image.topics.by_name


def test_directories_of_replicas_are_written_down_one_in_a_step(h: Harness) -> None:
    h.create("t", MANY, 2)
    topic_id = h.controller.image.topics.by_name["t"].id
    wanted = [ReplicaDirectory(topic_id, index, DIR_LOST) for index in range(MANY)]
    result = assign_replicas(h.view, 1, h.epochs[1], wanted)
    assert len(list(islice(result.records, 3))) == len(result.response) == 3
