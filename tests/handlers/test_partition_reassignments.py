"""AlterPartitionReassignments and ListPartitionReassignments: one node's answers compared with Apache Kafka's, and the
controller's decisions with several brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kbroker.errors import ApiError
from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.controller.topics import create_topics
from kbroker.raft_metadata.image import PartitionImage
from kbroker.raft_metadata.topics import NewTopic
from kbroker.types import Uuid
from kbroker.wire.records.metadata import PartitionChangeRecord
from tests.raft_metadata.controller_harness import Harness


def cluster(replicas: Sequence[int], *, brokers: int = 5) -> Harness:
    """A topic ``t`` with one partition on these brokers."""
    h = Harness()
    for broker_id in range(1, brokers + 1):
        h.broker(broker_id)
    h.apply(create_topics(h.view, [NewTopic("t", assignments=[(0, replicas)])]))
    return h


def partition(h: Harness) -> PartitionImage:
    found = h.controller.image.topics.partition("t", 0)
    assert found is not None
    return found


def reassign(h: Harness, replicas: Sequence[int] | None, *, allow_factor_change: bool = True) -> ApiError | None:
    result = alter_partition_reassignments(
        h.view, [Reassignment("t", 0, replicas)], allow_replication_factor_change=allow_factor_change
    )
    error: ApiError | None
    (error,) = h.apply(result)
    return error


def set_isr(h: Harness, isr: Sequence[int]) -> None:
    topic = h.controller.image.topics.by_name["t"]
    record = PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=list(isr))
    h.apply(ControllerResult(None, [record]))


def test_another_order_is_complete_at_once() -> None:
    h = cluster([1, 2, 3])
    assert reassign(h, [3, 1, 2]) is None
    now = partition(h)
    assert (now.replicas, now.leader, now.leader_epoch) == ((3, 1, 2), 1, 0)
    assert (now.adding_replicas, now.removing_replicas) == ((), ())


def test_fewer_replicas_are_complete_at_once_and_the_leader_begins_a_new_epoch() -> None:
    h = cluster([1, 2, 3])
    assert reassign(h, [2, 1]) is None
    now = partition(h)
    assert (now.replicas, now.isr, now.leader, now.leader_epoch) == ((2, 1), (1, 2), 1, 1)


def test_when_the_leader_goes_another_is_elected() -> None:
    h = cluster([1, 2, 3])
    assert reassign(h, [3, 2]) is None
    now = partition(h)
    assert (now.replicas, set(now.isr), now.leader, now.leader_epoch) == ((3, 2), {2, 3}, 3, 1)


def test_new_replicas_are_waited_for_and_can_be_cancelled() -> None:
    h = cluster([1, 2])
    before = partition(h)
    assert reassign(h, [4, 5]) is None
    now = partition(h)
    assert (now.replicas, now.isr, now.leader) == ((4, 5, 1, 2), (1, 2), 1)
    assert (now.adding_replicas, now.removing_replicas) == ((4, 5), (1, 2))
    assert now.directories == tuple(Uuid(bytes([100 + broker]) * 16) for broker in now.replicas)

    assert reassign(h, None) is None
    now = partition(h)
    assert replace(now, partition_epoch=0, leader_epoch=0) == replace(before, partition_epoch=0, leader_epoch=0)
    assert now.leader_epoch == before.leader_epoch + 1
    error = reassign(h, None)
    assert error is not None and error.code is E.NO_REASSIGNMENT_IN_PROGRESS


def test_it_completes_when_the_new_replicas_are_in_sync() -> None:
    h = cluster([1, 2])
    reassign(h, [4, 5])
    set_isr(h, [1, 2, 4, 5])
    assert reassign(h, [4, 5]) is None
    now = partition(h)
    assert (now.replicas, now.isr, now.leader) == ((4, 5), (4, 5), 4)
    assert (now.adding_replicas, now.removing_replicas) == ((), ())


def test_a_shrinking_partition_waits_for_all_that_stay() -> None:
    h = cluster([1, 2, 3, 4])
    set_isr(h, [1, 2])
    reassign(h, [2, 3])
    now = partition(h)
    assert now.removing_replicas == (1, 4), "only broker 2 would be in sync"
    assert now.isr == (1, 2)


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    h = cluster([1, 2])
    reassign(h, [4, 5])
    set_isr(h, [4])
    error = reassign(h, None)
    assert error is not None and error.code is E.INVALID_REPLICA_ASSIGNMENT
    assert "unclean leader election" in str(error.message)


@pytest.mark.parametrize(("replicas", "count"), [([1], 1), ([1, 2, 3], 3)])
def test_the_replication_factor_may_be_held(replicas: list[int], count: int) -> None:
    h = cluster([1, 2])
    error = reassign(h, replicas, allow_factor_change=False)
    assert error is not None and error.code is E.INVALID_REPLICATION_FACTOR
    assert error.message == f"The replication factor is changed from 2 to {count}"
    assert reassign(h, [3, 1], allow_factor_change=False) is None
