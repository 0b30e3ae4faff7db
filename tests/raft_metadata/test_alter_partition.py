"""The ISRs that a leader may propose, and the answers to others."""

from __future__ import annotations

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica, alter_partitions
from kbroker.raft_metadata.controller.brokers import register_broker
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas, directory_records
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.types import Uuid
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord
from tests.raft_metadata.controller_harness import Harness


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    for broker in (1, 2, 3, 4):
        harness.broker(broker)
    harness.assign("t", 1, 2, 3)
    return harness


def test_the_isr_shrinks_and_grows_in_the_same_leader_epoch(h: Harness) -> None:
    before = h.partition()
    smaller = h.alter(h.isr_change([1, 3]), leader=1)
    assert (smaller.leader, smaller.isr, smaller.leader_epoch) == (1, (1, 3), before.leader_epoch)
    assert smaller.partition_epoch == before.partition_epoch + 1
    assert smaller == h.partition()
    larger = h.alter(h.isr_change([InSyncReplica(broker, h.epochs[broker]) for broker in (1, 2, 3)]), leader=1)
    assert (larger.isr, larger.partition_epoch) == ((1, 2, 3), before.partition_epoch + 2)


def test_the_same_isr_again_changes_nothing(h: Harness) -> None:
    before = h.partition()
    assert h.alter(h.isr_change([1, 2, 3]), leader=1) == before == h.partition()


@pytest.mark.parametrize(
    ("leader", "isr", "changes", "error"),
    [
        (1, [1, 2], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        (1, [1, 2], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        (1, [1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (1, [1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (2, [1, 2], {}, ErrorCode.INVALID_REQUEST),
        (1, [2, 3], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 1], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 4], {}, ErrorCode.INVALID_REQUEST),
        (1, [], {}, ErrorCode.INVALID_REQUEST),
        (1, [1, 2], {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        (1, [1], {"recovery": 1}, ErrorCode.INVALID_REQUEST),
        (1, [1, 2], {"recovery": 7}, ErrorCode.INVALID_REQUEST),
        (1, [1, InSyncReplica(2, 0)], {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(h: Harness, leader: int, isr: list[int], changes: dict[str, int], error: ErrorCode) -> None:
    before = h.partition()
    assert h.alter(h.isr_change(isr, **changes), leader=leader) is error  # type: ignore[arg-type]
    assert h.partition() == before


def test_an_earlier_life_of_the_leader_is_not_heard(h: Harness) -> None:
    with pytest.raises(ApiError) as refused:
        alter_partitions(h.view, 1, h.epochs[1] - 1, [h.isr_change([1])])
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_unknown_topics_and_partitions(h: Harness) -> None:
    change = h.isr_change([1])
    assert h.alter(change._replace(topic_id=Uuid(b"?" * 16)), leader=1) is ErrorCode.UNKNOWN_TOPIC_ID
    assert h.alter(change._replace(partition=5), leader=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_that_are_fenced_or_stop_may_not_join(h: Harness) -> None:
    h.fence(3)
    assert h.partition().isr == (1, 2)
    assert h.alter(h.isr_change([1, 2, 3]), leader=1) is ErrorCode.INELIGIBLE_REPLICA
    h.unfence(3)
    record = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=h.epochs[3], in_controlled_shutdown=1)
    h.controller.replay([record], h.controller.image.provenance)
    assert h.alter(h.isr_change([1, 2, 3]), leader=1) is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_whose_disk_has_failed_may_not_join(h: Harness) -> None:
    """It would end a reassignment, and the last good replica would be deleted."""
    disks = [Uuid(b"first" + bytes(11)), Uuid(b"other" + bytes(11))]
    registration = h.registration(5, Uuid(b"5" * 16))._replace(log_dirs=disks)
    h.epochs[5] = h.apply(register_broker(h.view, registration))
    h.unfence(5)
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [5])]))
    found = ReplicaDirectory(h.controller.image.topics.by_name["t"].id, 0, disks[0])
    h.apply(assign_replicas(h.view, 5, h.epochs[5], [found]))
    change, before = h.isr_change([1, 2, 3, 5]), h.partition()
    h.apply(ControllerResult(None, directory_records(h.view, 5, disks[:1], None)))
    assert h.alter(change, leader=1) is ErrorCode.INELIGIBLE_REPLICA
    assert h.partition() == before


def test_after_an_unclean_election_the_leader_recovers_before_others_join(h: Harness) -> None:
    h.configure("t", "unclean.leader.election.enable", "true")
    h.fence(3, 2, 1)
    h.unfence(2)
    assert (h.partition().leader, h.partition().isr, h.partition().leader_recovery_state) == (2, (2,), 1)
    h.unfence(1)
    assert h.alter(h.isr_change([1, 2], recovery=1), leader=2) is ErrorCode.INVALID_REQUEST
    done = h.alter(h.isr_change([2]), leader=2)
    assert (done.leader_recovery_state, done.isr) == (0, (2,))
    assert h.alter(h.isr_change([2, 1]), leader=2).isr == (2, 1)


def test_a_reassignment_ends_when_the_new_replicas_have_joined(h: Harness) -> None:
    errors = h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [1, 2, 4])]))
    assert errors == [None]
    p = h.partition()
    assert (p.replicas, p.adding_replicas, p.removing_replicas, p.isr) == ((1, 2, 4, 3), (4,), (3,), (1, 2, 3))
    epoch = p.leader_epoch
    done = h.alter(h.isr_change([1, 2, 3, 4]), leader=1)
    assert (done.replicas, done.isr, done.leader) == ((1, 2, 4), (1, 2, 4), 1)
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert done.leader_epoch == epoch + 1, "3 must not follow any more"
    assert done == h.partition() and len(done.directories) == 3


def test_the_leader_that_is_moved_away_is_told_that_another_leads(h: Harness) -> None:
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [4, 2, 3])]))
    assert h.partition().leader == 1
    assert h.alter(h.isr_change([1, 2, 3, 4]), leader=1) is ErrorCode.NEW_LEADER_ELECTED
    p = h.partition()
    assert (p.replicas, p.leader, set(p.isr)) == ((4, 2, 3), 4, {2, 3, 4})


def test_a_reassignment_that_replaces_another_ends_too(h: Harness) -> None:
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [3, 4, 2])]))
    assert h.partition().adding_replicas == (4,)
    # 4 was being added and is not wanted any more; all that are wanted are in sync already.
    assert h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [1, 3, 2])])) == [None]
    now = h.partition()
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((1, 3, 2), (), ())
    # One that was being added and still is wanted has to come in sync first.
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [3, 4, 2])]))
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [2, 4, 3])]))
    now = h.partition()
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((2, 4, 3, 1), (4,), (1,))


def test_a_reassignment_is_cancelled(h: Harness) -> None:
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [4])]))
    assert h.partition().replicas == (4, 1, 2, 3)
    assert h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, None)])) == [None]
    p = h.partition()
    assert (p.replicas, p.adding_replicas, p.removing_replicas, p.leader) == ((1, 2, 3), (), (), 1)
    [error] = h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, None)]))
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancelled_reassignment_never_puts_a_fenced_broker_into_the_isr(h: Harness) -> None:
    h.configure("t", "unclean.leader.election.enable", "true")
    h.fence(3, 2)
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [4])]))
    h.fence(1)
    p = h.partition()
    assert (p.replicas, p.leader, p.isr, p.leader_recovery_state) == ((4, 1, 2, 3), 4, (4,), 1)
    assert h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, None)])) == [None]
    p = h.partition()
    assert (p.replicas, p.leader, p.isr) == ((1, 2, 3), -1, ())
    h.unfence(2)
    assert (h.partition().leader, h.partition().isr, h.partition().leader_recovery_state) == (2, (2,), 1)


def test_a_reassignment_is_not_cancelled_while_only_eligible_leaders_would_be_left(h: Harness) -> None:
    """As in Apache Kafka, which looks at the ISR alone; with unclean elections allowed, the eligible leader leads."""
    h.broker(5, unfence=False)
    h.configure("t", "min.insync.replicas", "3")
    h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, [4, 5])]))
    h.alter(h.isr_change([1, 2, 3, 4]), leader=1)
    h.fence(1, 2, 3)
    p = h.partition()
    assert (p.replicas, p.leader, p.isr, set(p.elr)) == ((4, 5, 1, 2, 3), 4, (4,), {2, 3})
    [error] = h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, None)]))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert h.partition() == p
    h.configure("t", "unclean.leader.election.enable", "true")
    assert h.apply(alter_partition_reassignments(h.view, [Reassignment("t", 0, None)])) == [None]
    p = h.partition()
    assert (p.replicas, p.leader, p.isr, set(p.elr)) == ((1, 2, 3), -1, (), {2, 3})
    h.unfence(2)
    assert (h.partition().leader, h.partition().isr, h.partition().leader_recovery_state) == (2, (2,), 0)
