"""The controller without a log: brokers, placement, producer ids, leadership."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import Any, cast

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.assignments import UsableBroker, place_replicas
from kbroker.raft_metadata.controller.brokers import (
    BrokerRegistration,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from kbroker.raft_metadata.controller.configs import (
    APPEND,
    DELETE,
    SET,
    ConfigChange,
    incremental_alter_configs,
    legacy_alter_configs,
)
from kbroker.raft_metadata.controller.producer_ids import allocate_producer_ids
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.controller.requested_elections import elect_leaders
from kbroker.raft_metadata.controller.topics import CreatedTopic, create_partitions, create_topics
from kbroker.raft_metadata.image import NO_LEADER, BrokerImage, ConfigResource, ResourceType
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES
from kbroker.raft_metadata.topics import NewPartitions, NewTopic
from kbroker.types import TopicPartition, Uuid
from kbroker.value_types import replace
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord, RegisterBrokerRecord
from tests.raft_metadata.controller_harness import FEATURES, Harness


def code(excinfo: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return excinfo.value.code


def test_a_broker_is_registered_fenced_with_its_records_offset_as_epoch() -> None:
    h = Harness()
    expected = h.view.next_offset
    assert h.broker(1, unfence=False) == expected
    assert h.controller.image.brokers[1].fenced
    with pytest.raises(ApiError) as stale:
        unfence_broker(h.view, 1, expected + 1)
    assert code(stale) is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(ApiError) as unknown:
        unfence_broker(h.view, 2, 0)
    assert code(unknown) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_brokers_epoch_is_the_end_of_the_log_behind_control_records_too() -> None:
    h = Harness()
    registration = h.registration(1, Uuid(b"i" * 16))
    assert register_broker(h.controller.view(100), registration).response == 100


class _LookedUp(dict[int, BrokerImage]):
    """The brokers, and how often one was looked up: for each partition that is decided on, at least once."""

    times = 0

    def get(self, broker_id: int, default: Any = None) -> Any:
        self.times += 1
        return super().get(broker_id, default)


def test_what_follows_an_unclean_end_is_decided_as_it_is_read() -> None:
    h = Harness()
    for broker in (1, 2):
        h.broker(broker)
    h.create("t", 100, 2)
    h.controller.image = replace(h.controller.image, brokers=(brokers := _LookedUp(h.controller.image.brokers)))
    result = register_broker(h.controller.view(1_000), h.registration(1, Uuid(b"2" * 16)))
    records = iter(result.records)
    next(records)
    assert brokers.times < 10
    *_, last = records
    assert brokers.times >= 100
    assert isinstance(last, RegisterBrokerRecord) and last.broker_epoch == result.response == 1_100


def test_where_replicas_go_is_decided_as_it_is_read() -> None:
    h = Harness()
    for broker in (1, 2, 3):
        h.broker(broker)
    for operation in (
        lambda: create_topics(h.view, [NewTopic("t", 100, 2)]),
        lambda: create_partitions(h.view, [NewPartitions("t", 200, None)]),
    ):
        result = operation()
        records = iter(result.records)
        first = list(islice(records, 10))
        state = h.view.rng.getstate()
        rest = list(records)
        assert h.view.rng.getstate() != state  # brokers are shuffled again and again
        h.apply(ControllerResult(None, first + rest))
    assert len(h.controller.image.topics.by_name["t"].partitions) == 200


@pytest.mark.parametrize(("validate_only", "factor"), [(False, 1), (True, 1), (False, 2)])
def test_each_topic_of_a_request_is_a_step_at_least(validate_only: bool, factor: int) -> None:
    """Also one that is only judged, or refused: a request may name thousands."""
    h = Harness()
    h.broker(1)
    asked = [NewTopic(f"t{number}", 1, factor) for number in range(10)]
    result = create_topics(h.view, asked, validate_only=validate_only)
    steps = 0
    for _ in result.records:
        steps += 1
        assert len(result.response) <= steps
    assert steps >= 10
    assert [isinstance(each, CreatedTopic) for each in result.response.values()] == [factor == 1] * 10


def test_a_broker_that_is_unregistered_leads_nothing_and_may_register_again() -> None:
    h = Harness()
    for broker in (1, 2):
        h.broker(broker)
    topic = h.create("t", 2, 2)
    h.apply(unregister_broker(h.view, 1))
    assert 1 not in h.controller.image.brokers
    partitions = h.controller.image.topics.by_id[topic.topic_id].partitions.values()
    assert [(partition.leader, partition.isr) for partition in partitions] == [(2, (2,))] * 2
    with pytest.raises(ApiError) as unknown:
        unregister_broker(h.view, 1)
    assert code(unknown) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unknown.value.message == "Broker ID 1 is not currently registered"
    h.broker(1)
    assert not h.controller.image.brokers[1].fenced


def test_another_node_cannot_take_a_live_brokers_id() -> None:
    h = Harness()
    h.broker(1)
    thief = BrokerRegistration(1, Uuid(b"z" * 16), [], FEATURES, [Uuid(b"y" * 16)], previous_broker_epoch=99)
    with pytest.raises(ApiError) as refused:
        register_broker(h.view, thief)
    assert code(refused) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_that_cannot_speak_the_clusters_version_is_refused() -> None:
    h = Harness()
    old = BrokerRegistration(1, Uuid(b"z" * 16), [], {"metadata.version": (7, 20)}, [])
    with pytest.raises(ApiError) as refused:
        register_broker(h.view, old)
    assert code(refused) is ErrorCode.UNSUPPORTED_VERSION


def test_producer_id_blocks_never_overlap() -> None:
    h = Harness()
    epoch = h.broker(1)
    blocks = [h.apply(allocate_producer_ids(h.view, 1, epoch)) for _ in range(3)]
    assert [tuple(block) for block in blocks] == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(ApiError):
        allocate_producer_ids(h.view, 1, epoch + 1)


@pytest.mark.parametrize("seed", range(20))
def test_placement_spreads_over_racks_and_brokers(seed: int) -> None:
    brokers = [UsableBroker(i, f"rack{i % 3}", False) for i in range(6)]
    placements = list(place_replicas(brokers, 60, 3, random.Random(seed)))
    for replicas in placements:
        assert len(set(replicas)) == 3
        assert len({replica % 3 for replica in replicas}) == 3
    leaders = Counter(replicas[0] for replicas in placements)
    assert max(leaders.values()) - min(leaders.values()) <= 6
    assert len(leaders) == 6


@pytest.mark.parametrize(("machines", "cores", "factor"), [(1, 3, 1), (2, 2, 1), (2, 2, 2), (3, 2, 3), (4, 2, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_leaders_are_spread_over_cores_and_machines_alike(machines: int, cores: int, factor: int, seed: int) -> None:
    """Each of as many partitions as there are nodes has another leader, and no replica beside another one's machine."""
    count = machines * cores
    nodes = [UsableBroker(i, f"machine{i // cores}", False) for i in range(count)]
    placements = list(place_replicas(nodes, 5 * count, factor, random.Random(seed)))
    assert all(len({replica // cores for replica in replicas}) == factor for replicas in placements)
    for first in range(0, len(placements), count):
        assert sorted(replicas[0] for replicas in placements[first : first + count]) == list(range(count))
    held = Counter(replica for replicas in placements for replica in replicas)
    assert max(held.values()) - min(held.values()) <= 2 * factor


def test_an_eligible_replica_leads_again_when_it_is_back() -> None:
    """A controlled shutdown of Apache Kafka leaves an eligible leader behind (KIP-966)."""
    h = Harness()
    epochs = {broker: h.broker(broker) for broker in (1, 2)}
    topic = h.create("t", 1, 2)
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic.topic_id, leader=NO_LEADER, isr=[], eligible_leader_replicas=[2]
    )
    h.apply(ControllerResult(None, [change]))
    for broker in (1, 2):
        h.apply(
            ControllerResult(
                None, [BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=epochs[broker], fenced=1)]
            )
        )
    h.apply(unfence_broker(h.view, 1, epochs[1]))
    assert h.controller.image.topics.by_name["t"].partitions[0].leader == NO_LEADER
    h.apply(unfence_broker(h.view, 2, epochs[2]))
    partition = h.controller.image.topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())


def test_fenced_brokers_hold_replicas_only_if_they_must_and_never_lead() -> None:
    brokers = [UsableBroker(1, None, False), UsableBroker(2, None, False), UsableBroker(3, None, True)]
    rng = random.Random(1)
    assert all(3 not in replicas for replicas in place_replicas(brokers, 30, 2, rng))
    placements = place_replicas(brokers, 30, 3, rng)
    assert all(sorted(replicas) == [1, 2, 3] and replicas[0] != 3 for replicas in placements)


def test_names_collide_with_topics_that_exist_but_not_within_one_request() -> None:
    h = Harness()
    h.broker(1)
    outcome = h.apply(create_topics(h.view, [NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)]))
    assert all(isinstance(each, CreatedTopic) for each in outcome.values()), outcome
    outcome = h.apply(create_topics(h.view, [NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1)]))
    assert [each.code for each in outcome.values() if isinstance(each, ApiError)] == [
        ErrorCode.TOPIC_ALREADY_EXISTS
    ] * 2
    h.create("c_d", 1, 1)
    refused = h.apply(create_topics(h.view, [NewTopic("c.d", 1, 1)]))["c.d"]
    assert isinstance(refused, ApiError) and refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_value_that_appending_makes_too_long_is_refused() -> None:
    h = Harness()
    h.broker(1)
    h.create("t", 1, 1)
    resource = ConfigResource(ResourceType.TOPIC, "t")
    name = "leader.replication.throttled.replicas"
    for number in range(3):
        value = ",".join(f"{partition}:{number}" for partition in range(2500))
        changes = {resource: [ConfigChange(name, APPEND, value)]}
        errors = h.apply(incremental_alter_configs(h.view, changes))
    assert errors[resource] is not None and errors[resource].code is ErrorCode.INVALID_CONFIG


def test_a_broker_may_not_register_another_brokers_disk() -> None:
    h = Harness()
    h.broker(1)
    disk = h.controller.image.brokers[1].log_dirs[0]
    for dirs, features in (
        ([disk], FEATURES),
        ([], FEATURES),
        ([Uuid(bytes(15) + b"\x07")], FEATURES),
        ([Uuid(b"2" * 16)] * 2, FEATURES),
    ):
        with pytest.raises(ApiError) as refused:
            register_broker(h.view, BrokerRegistration(2, Uuid(b"z" * 16), [], features, dirs))
        assert code(refused) is ErrorCode.INVALID_REGISTRATION


def test_the_same_life_of_a_broker_keeps_its_epoch() -> None:
    h = Harness()
    epoch = h.broker(1)
    broker = h.controller.image.brokers[1]
    again = BrokerRegistration(1, broker.incarnation_id, [], FEATURES, broker.log_dirs, "rack")
    assert h.apply(register_broker(h.view, again)) == epoch
    assert (h.controller.image.brokers[1].rack, h.controller.image.brokers[1].fenced) == ("rack", False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_new_life_is_in_no_isr_and_eligible_only_after_a_clean_stop(clean: bool) -> None:
    h = Harness()
    for broker in (1, 2):
        h.broker(broker)
    h.assign("t", 1, 2, min_insync_replicas="2")
    h.fence(2)
    assert (h.partition().isr, h.partition().elr) == ((1,), (2,))
    previous = h.epochs[2] if clean else -1
    h.broker(2, unfence=False, previous_epoch=previous)
    assert (h.partition().isr, h.partition().elr) == ((1,), (2,) if clean else ())
    previous = h.epochs[1] if clean else -1
    h.broker(1, unfence=False, previous_epoch=previous)
    partition = h.partition()
    assert (partition.leader, partition.isr, set(partition.elr)) == (-1, (), {1, 2} if clean else set())
    h.unfence(1)
    partition = h.partition()
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0 if clean else 1)


def test_a_broker_that_has_always_been_alone_leads_on_in_another_epoch_after_a_kill() -> None:
    """It may have lost records: consumers see by the epoch that others took their offsets."""
    h = Harness()
    h.broker(1)
    h.assign("t", 1)
    before = h.partition()
    h.broker(1, previous_epoch=h.epochs[1])
    assert h.partition() == before
    h.broker(1)
    after = h.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), before.leader_epoch + 2)


def test_brokers_whose_disks_are_all_cordoned_get_no_new_replicas() -> None:
    h = Harness()
    for broker in (1, 2, 3):
        h.broker(broker)
    disks = list(h.controller.image.brokers[2].log_dirs)
    record = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=h.epochs[2], cordoned_log_dirs=disks)
    h.apply(ControllerResult(None, [record]))
    h.create("t", 12, 2)
    partitions = h.controller.image.topics.by_name["t"].partitions.values()
    assert all(set(partition.replicas) == {1, 3} for partition in partitions)
    for ask in (lambda: h.create("u", 1, 3), lambda: h.assign("u", 1, 2)):
        with pytest.raises(ApiError) as refused:
            ask()
        assert "log directories" in str(refused.value.message)


def cordon(h: Harness, broker: str, value: str | None, *, forwarded: bool) -> ApiError | None:
    resource = ConfigResource(ResourceType.BROKER, broker)
    change = ConfigChange("cordoned.log.dirs", DELETE if value is None else SET, value)
    [error] = h.apply(incremental_alter_configs(h.view, {resource: [change]}, forwarded=forwarded)).values()
    return cast("ApiError | None", error)


def test_directories_are_cordoned_from_the_level_on_that_knows_them() -> None:
    h = Harness(level=CORDONED_DIRECTORIES - 1)
    h.broker(1)
    for value in ("/data", "", None):
        error = cordon(h, "1", value, forwarded=True)
        assert error is not None and error.code is ErrorCode.INVALID_CONFIG
        assert error.message is not None and error.message.endswith("requires metadata.version >= 4.3-IV0")
    h.raise_level(CORDONED_DIRECTORIES)
    assert cordon(h, "1", "/data", forwarded=True) is None


def test_what_no_broker_has_judged_may_cordon_no_more_directories() -> None:
    """A controller does not know the paths of a broker's directories."""
    h = Harness()
    h.broker(1)
    assert cordon(h, "1", "/a, /b,/c", forwarded=True) is None
    for refused in ("/d", "/a,/d", "*"):
        error = cordon(h, "1", refused, forwarded=False)
        assert error is not None and error.code is ErrorCode.INVALID_CONFIG
        assert error.message is not None and error.message.endswith(
            "must be a subset of the current configuration value."
        )
    for value in ("/c ,/a", "/a", " ", None):
        assert cordon(h, "1", value, forwarded=False) is None
    broker = ConfigResource(ResourceType.BROKER, "1")
    for forwarded in (False, True):
        result = legacy_alter_configs(h.view, {broker: {"cordoned.log.dirs": "/a"}}, forwarded=forwarded)
        assert [error is None for error in result.response.values()] == [forwarded]


def test_errors_of_many_parts_do_not_keep_the_frames_that_they_have_passed_through() -> None:
    """A request may name 90,000 of them: what frames hold is left to the garbage collector, which took two seconds in
    one go, and the voters elected another controller meanwhile."""
    h = Harness()
    h.broker(1)
    refused = [
        *alter_partition_reassignments(h.view, [Reassignment("none", 0, [1])]).response,
        *h.decide(create_topics(h.view, [NewTopic("bad/name", 1, 1)])).values(),
        *h.decide(create_partitions(h.view, [NewPartitions("none", 3, None)])).values(),
        *elect_leaders(h.view, [TopicPartition("none", 0)], unclean=False).response.values(),
    ]
    assert len(refused) == 4
    for error in refused:
        assert isinstance(error, ApiError)
        assert error.__traceback__ is None


@pytest.mark.parametrize("sizes", [(10_000,), (4_000, 6_000)])
def test_a_topic_counts_among_the_records_of_its_request(sizes: tuple[int, ...]) -> None:
    """A request may have 10,000 records in all, and a topic has one besides its partitions'."""
    h = Harness()
    h.broker(1)
    topics = [NewTopic(f"t{size}", size, 1, (), ()) for size in sizes]
    with pytest.raises(ApiError) as caught:
        h.apply(create_topics(h.view, topics))
    assert code(caught) is ErrorCode.POLICY_VIOLATION
    assert caught.value.message == "Unable to perform excessively large batch operation."
    fewer = topics[0]._replace(num_partitions=sizes[0] - len(sizes))
    h.apply(create_topics(h.view, [fewer, *topics[1:]]))
    assert len(h.controller.image.topics.by_name) == len(sizes)


def test_a_request_may_add_so_many_partitions() -> None:
    h = Harness()
    h.broker(1)
    for name in ("a", "b"):
        h.create(name, 2, 1)
    with pytest.raises(ApiError) as caught:
        create_partitions(h.view, [NewPartitions("a", 6_002, None), NewPartitions("b", 4_003, None)])
    assert code(caught) is ErrorCode.POLICY_VIOLATION
    assert caught.value.message == "Excessively large number of additional partitions per request."
    # What is unknown, or would not be an increase, does not count.
    asked = [("none", 9_000, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("b", -5, ErrorCode.INVALID_PARTITIONS)]
    result = create_partitions(
        h.view, [*(NewPartitions(name, total, None) for name, total, _ in asked), NewPartitions("a", 10_002, None)]
    )
    errors = [error and error.code for error in h.apply(result).values()]
    assert errors == [*(expected for _, _, expected in asked), None]
    assert len(h.controller.image.topics.by_name["a"].partitions) == 10_002
