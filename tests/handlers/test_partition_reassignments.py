"""AlterPartitionReassignments and ListPartitionReassignments: one node's answers compared with Apache Kafka's, and the
controller's decisions with several brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.errors import ApiError
from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.controller.topics import create_topics
from kbroker.raft_metadata.image import PartitionImage
from kbroker.raft_metadata.topics import NewTopic
from kbroker.types import Uuid
from kbroker.wire.messages import alter_partition_reassignments as apr
from kbroker.wire.messages import create_topics as ct
from kbroker.wire.messages import list_partition_reassignments as lpr
from kbroker.wire.records.metadata import PartitionChangeRecord
from tests.handlers.metadata_plane import Plane
from tests.handlers.test_group_configs import converse
from tests.raft_metadata.controller_harness import Harness


async def ask(
    plane: Plane, *wanted: tuple[str, int, list[int] | None], version: int = 1, allow_factor_change: bool = True
) -> list[tuple[int, str | None]]:
    request = apr.AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change,
        topics=[
            apr.ReassignableTopic(
                name=name, partitions=[apr.ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            for name, index, replicas in wanted
        ],
    )
    answer = await plane.ask(request, version)
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, allow_factor_change)
    return [(entry.error_code, entry.error_message) for topic in answer.responses for entry in topic.partitions]


def test_one_node_has_nowhere_to_move_to(tmp_path: Path) -> None:
    unregistered = "The manual partition assignment includes broker {}, but no such broker is registered."
    cases: list[tuple[tuple[str, int, list[int] | None], tuple[int, str | None]]] = [
        (("a", 0, [1]), (0, None)),
        (("a", 0, [2]), (E.INVALID_REPLICA_ASSIGNMENT, unregistered.format(2))),
        (("a", 0, [1, 2]), (E.INVALID_REPLICA_ASSIGNMENT, unregistered.format(2))),
        (("a", 0, [-1]), (E.INVALID_REPLICA_ASSIGNMENT, unregistered.format(-1))),
        (
            ("a", 0, [1, 1]),
            (E.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes the broker 1 more than once."),
        ),
        (
            ("a", 0, []),
            (E.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        ),
        (("a", 0, None), (E.NO_REASSIGNMENT_IN_PROGRESS, None)),
        (("a", 7, [1]), (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition a:7.")),
        (("nope", 0, None), (E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nope.")),
    ]

    async def talk(plane: Plane) -> None:
        topic = ct.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
        await plane.ask(ct.CreateTopicsRequest(topics=[topic]))
        before = plane.metadata.image.topics
        for version in (0, 1):
            assert await ask(plane, *(wanted for wanted, _ in cases), version=version) == [said for _, said in cases]
        assert plane.metadata.image.topics == before
        listed = await plane.ask(lpr.ListPartitionReassignmentsRequest(topics=None))
        assert (listed.error_code, listed.topics) == (0, [])

    converse(tmp_path, talk)


def test_an_empty_request_has_an_empty_answer(tmp_path: Path) -> None:
    async def talk(plane: Plane) -> None:
        request = apr.AlterPartitionReassignmentsRequest(allow_replication_factor_change=False)
        answer = await plane.ask(request, 1)
        assert answer == apr.AlterPartitionReassignmentsResponse(error_message="")

    converse(tmp_path, talk)


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
