"""Leaders and eligible leaders of partitions, as brokers come and go and when elections are requested."""

from __future__ import annotations

from itertools import islice

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.broker_changes import leads_any
from kbroker.raft_metadata.controller.brokers import begin_controlled_shutdown, register_broker, unfence_broker
from kbroker.raft_metadata.controller.configs import SET, ConfigChange, incremental_alter_configs
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.raft_metadata.controller.requested_elections import balance_leaders, elect_leaders, elect_missing_leaders
from kbroker.raft_metadata.controller.sessions import BrokerState, current_state
from kbroker.raft_metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kbroker.raft_metadata.image import ALL_BROKERS, DIR_LOST, DIR_MIGRATING, DIR_UNASSIGNED, NO_LEADER
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.records.metadata import FeatureLevelRecord
from tests.raft_metadata.controller_harness import Harness

T0 = TopicPartition("t", 0)


def brokers(*, elr: bool = True, count: int = 3) -> Harness:
    h = Harness(elr=elr)
    for broker in range(1, count + 1):
        h.broker(broker)
    return h


@pytest.mark.parametrize("elr", [True, False])
def test_leadership_moves_when_a_broker_is_fenced_and_only_the_last_one_leads_again(elr: bool) -> None:
    h = brokers(elr=elr)
    h.create("t", 9, 3)
    topic = "t"
    assert {h.partition(topic, index).leader for index in range(9)} == {1, 2, 3}
    h.fence(1, 2)
    assert all((p.leader, p.isr) == (3, (3,)) for p in h.controller.image.topics.by_name[topic].partitions.values())
    h.fence(3)
    last = ((), (3,), (3,)) if elr else ((3,), (), ())
    for p in h.controller.image.topics.by_name[topic].partitions.values():
        assert (p.leader, (p.isr, p.elr, p.last_known_elr)) == (NO_LEADER, last)
    h.unfence(1)
    assert h.partition().leader == NO_LEADER, "1 lacks what 3 alone acknowledged"
    h.unfence(3)
    for p in h.controller.image.topics.by_name[topic].partitions.values():
        assert (p.leader, p.isr, p.elr, p.last_known_elr, p.leader_recovery_state) == (3, (3,), (), (), 0)


def test_an_unclean_election_gives_the_partition_to_whoever_lives() -> None:
    h = brokers(count=2)
    h.create("t", 1, 2)
    h.fence(1, 2)
    h.unfence(1)
    refused = h.apply(elect_leaders(h.view, [T0], unclean=False))
    assert refused[T0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert h.apply(elect_leaders(h.view, [T0], unclean=True)) == {T0: None}
    p = h.partition()
    assert (p.leader, p.isr, p.elr, p.leader_recovery_state) == (1, (1,), (), 1)
    not_needed = h.apply(elect_leaders(h.view, [T0], unclean=True))
    assert not_needed[T0].code is ErrorCode.ELECTION_NOT_NEEDED


def test_nobody_lives_so_nobody_can_be_elected() -> None:
    h = brokers(count=2)
    h.create("t", 1, 2)
    h.fence(1, 2)
    refused = h.apply(elect_leaders(h.view, [T0, TopicPartition("t", 7)], unclean=True))
    assert refused[T0].code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert refused[TopicPartition("t", 7)].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_topic_may_allow_unclean_elections_by_themselves() -> None:
    h = brokers(count=2)
    h.assign("t", 1, 2, unclean_leader_election_enable="true")
    h.fence(2)
    h.fence(1)
    assert h.partition().leader == NO_LEADER
    h.unfence(2)
    p = h.partition()
    assert (p.leader, p.isr, p.leader_recovery_state) == (2, (2,), 1)


def test_a_leaderless_partition_is_elected_when_its_topic_comes_to_allow_it() -> None:
    h = brokers(count=2)
    h.assign("t", 1, 2)
    h.fence(2, 1)
    h.unfence(2)
    assert h.apply(elect_missing_leaders(h.view)) is False
    assert h.partition().leader == NO_LEADER
    h.configure("t", "unclean.leader.election.enable", "true")
    h.apply(elect_missing_leaders(h.view))
    assert h.partition().leader == 2


def test_what_a_controller_leaves_half_done_is_ended() -> None:
    """The records of ten thousand partitions are a batch, and it may end after the first of several."""
    h = brokers(count=2)
    h.assign("t", 1, 2)
    h.fence(1)
    h.fence(2)
    h.apply(ControllerResult(None, islice(unfence_broker(h.view, 2, h.epochs[2]).records, 1)))
    assert (h.partition().leader, h.controller.image.brokers[2].fenced) == (NO_LEADER, False)
    h.apply(elect_missing_leaders(h.view))
    assert h.partition().leader == 2
    h.unfence(1)
    h.create("u", 4, 2)
    h.apply(ControllerResult(None, islice(begin_controlled_shutdown(h.view, 1, h.epochs[1]).records, 1)))
    assert current_state(h.controller.image.brokers[1]) is BrokerState.UNFENCED and leads_any(h.view, 1)
    h.apply(begin_controlled_shutdown(h.view, 1, h.epochs[1]))
    assert current_state(h.controller.image.brokers[1]) is BrokerState.CONTROLLED_SHUTDOWN
    assert not leads_any(h.view, 1)


def test_a_replica_that_leaves_an_isr_too_small_to_acknowledge_stays_eligible() -> None:
    h = brokers()
    h.assign("t", 1, 2, 3, min_insync_replicas="2")
    h.fence(1)
    assert (h.partition().isr, h.partition().elr) == ((2, 3), ())
    h.fence(2)
    assert (h.partition().isr, h.partition().elr) == ((3,), (2,))
    h.fence(3)
    p = h.partition()
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (NO_LEADER, (), (2, 3), (3,))
    h.unfence(2)
    p = h.partition()
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (2, (2,), (3,), ())
    h.unfence(3)
    h.alter(h.isr_change([2, 3]), leader=2)
    assert (h.partition().isr, h.partition().elr) == ((2, 3), ())


@pytest.mark.parametrize("of_all", [False, True])
def test_who_is_eligible_stays_so_without_a_leader_whatever_becomes_of_the_configs(of_all: bool) -> None:
    """Apache Kafka forgets it, and the partition stays without a leader when they are back."""
    h = brokers()
    h.assign("t", 1, 2, 3, min_insync_replicas="2")
    h.assign("u", 3)
    h.fence(1, 2, 3)
    if of_all:
        changes = {ALL_BROKERS: [ConfigChange("min.insync.replicas", SET, "1")]}
        assert h.apply(incremental_alter_configs(h.view, changes)) == {ALL_BROKERS: None}
    else:
        h.configure("t", "min.insync.replicas", "1")
        h.configure("u", "min.insync.replicas", "1")
    h.unfence(1)
    assert h.partition("t").leader == NO_LEADER, "1 lacks what 2 and 3 have acknowledged"
    h.unfence(3)
    for topic in ("t", "u"):
        p = h.partition(topic)
        assert (p.leader, p.isr, p.last_known_elr, p.leader_recovery_state) == (3, (3,), (), 0)
    assert h.partition("t").elr == (() if not of_all else (2,)), "alone it acknowledges what 2 lacks"


@pytest.mark.parametrize("clean", [False, True])
def test_who_was_the_last_in_sync_before_there_were_eligible_leaders_leads_again(clean: bool) -> None:
    h = brokers(elr=False)
    h.assign("t", 3)
    h.fence(3)
    assert (h.partition().leader, h.partition().isr) == (NO_LEADER, (3,))
    h.apply(ControllerResult(None, [FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1)]))
    h.broker(3, previous_epoch=h.epochs[3] if clean else -1)
    p = h.partition()
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (3, (3,), (), ())


def test_leaders_go_back_to_the_preferred_replicas() -> None:
    h = brokers()
    h.create("t", 9, 3)
    h.fence(1)
    h.unfence(1)
    topic = h.controller.image.topics.by_name["t"]
    displaced = [index for index, p in topic.partitions.items() if p.preferred_leader == 1]
    assert displaced and all(topic.partitions[index].leader != 1 for index in displaced)
    assert balance_leaders(h.view).records == [], "1 is not in any ISR yet"
    for index in displaced:
        refused = h.apply(elect_leaders(h.view, [TopicPartition("t", index)], unclean=False))
        assert [error.code for error in refused.values()] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    first = displaced[0]
    leader = h.partition("t", first).leader
    wish = h.isr_change([1, 2, 3])._replace(
        partition=first,
        leader_epoch=h.partition("t", first).leader_epoch,
        partition_epoch=h.partition("t", first).partition_epoch,
    )
    h.alter(wish, leader=leader)
    h.apply(balance_leaders(h.view))
    assert h.partition("t", first).leader == 1
    assert all(h.partition("t", index).leader != 1 for index in displaced[1:])


def test_a_replica_in_a_failed_directory_is_not_in_sync() -> None:
    h = brokers()
    h.assign("t", 1, 2, min_insync_replicas="2")
    topic_id = h.controller.image.topics.by_name["t"].id
    good = h.controller.image.brokers[1].log_dirs[0]
    before = h.partition()
    for directory, known in ((good, True), (Uuid(b"gone" * 4), False)):
        entry = ReplicaDirectory(topic_id, 0, directory)
        errors = h.apply(assign_replicas(h.view, 1, h.epochs[1], [entry]))
        assert errors == {entry: ErrorCode.NONE}
        p = h.partition()
        if known:
            assert p == before
    assert (p.directories, p.leader, p.isr, p.elr) == ((directory, before.directories[1]), 2, (2,), (1,))
    assert p.partition_epoch == before.partition_epoch + 1


def test_ids_of_directories_that_are_none_are_those_of_apache_kafka() -> None:
    assert [int.from_bytes(each) for each in (DIR_MIGRATING, DIR_UNASSIGNED, DIR_LOST)] == [0, 1, 2]  # DirectoryId
    broker = brokers(count=1).controller.image.brokers[1]
    assert broker.has_online_dir(DIR_MIGRATING) and broker.has_online_dir(DIR_UNASSIGNED)
    assert not broker.has_online_dir(DIR_LOST)


@pytest.mark.parametrize("elr", [True, False])
def test_the_only_replica_is_lost_and_leads_again_as_soon_as_it_is_found(elr: bool) -> None:
    h = brokers(elr=elr)
    h.assign("t", 1)
    topic_id = h.controller.image.topics.by_name["t"].id
    home = h.controller.image.brokers[1].log_dirs[0]
    for directory, leader in ((DIR_LOST, NO_LEADER), (home, 1)):
        h.apply(assign_replicas(h.view, 1, h.epochs[1], [ReplicaDirectory(topic_id, 0, directory)]))
        assert (h.partition().directories, h.partition().leader) == ((directory,), leader)
    assert h.partition().isr == (1,)


@pytest.mark.parametrize("elr", [True, False])
def test_a_damaged_replica_is_not_eligible_to_lead_any_more(elr: bool) -> None:
    h = brokers(elr=elr)
    h.assign("t", 1, 2, 3, min_insync_replicas="2")
    h.fence(3, 1)
    assert (h.partition().isr, h.partition().elr) == ((2,), (1,) if elr else ())
    h.unfence(1, 3)
    topic_id = h.controller.image.topics.by_name["t"].id
    home = h.controller.image.brokers[2].log_dirs[0]
    for directory in (DIR_LOST, home):
        damaged = ReplicaDirectory(topic_id, 0, directory, is_damaged=directory == DIR_LOST)
        h.apply(assign_replicas(h.view, 2, h.epochs[2], [damaged]))
        p = h.partition()
        if elr:
            assert (p.leader, p.isr, p.elr) == (1, (1,), ()), "1 has everything, and is the only one"
        else:
            assert (p.leader, p.isr) == (NO_LEADER if directory == DIR_LOST else 2, (2,)), "nobody else has everything"
    assert p.directories[1] == home


def test_who_comes_back_without_a_directory_is_not_eligible_for_what_was_in_it() -> None:
    """It stopped cleanly, and has forgotten nothing of the others. The log that it makes elsewhere is empty."""
    h = brokers()
    home, other = Uuid(b"home" * 4), Uuid(b"gone" * 4)

    def begin_life(*log_dirs: Uuid) -> None:
        registration = h.registration(1, Uuid(bytes([len(log_dirs)]) * 16))
        registration = registration._replace(log_dirs=log_dirs, previous_broker_epoch=h.epochs[1])
        h.epochs[1] = h.apply(register_broker(h.view, registration))

    def is_in(topic: str, directory: Uuid) -> None:
        topic_id = h.controller.image.topics.by_name[topic].id
        h.apply(assign_replicas(h.view, 1, h.epochs[1], [ReplicaDirectory(topic_id, 0, directory)]))

    h.fence(1)
    begin_life(home, other)
    h.unfence(1)
    for name, directory in (("kept", home), ("gone", other)):
        h.assign(name, 1, 2, 3, min_insync_replicas="2")
        is_in(name, directory)
    h.fence(2, 3, 1)
    assert {*h.partition("kept").elr} == {*h.partition("gone").elr} == {1, 3}
    begin_life(home)
    assert ({*h.partition("kept").elr}, h.partition("gone").elr) == ({1, 3}, (3,))
    h.unfence(1)
    is_in("gone", home)
    assert (h.partition("kept").leader, h.partition("gone").leader) == (1, NO_LEADER)
    h.unfence(3)
    assert h.partition("gone").leader == 3
