"""Groups that change their protocol with members in them, both ways (KIP-848's online migration)."""

from __future__ import annotations

import pytest

from kbroker.cores.groups.consumer_migration import decode_subscription, encode_assignment
from kbroker.errors import ErrorCode
from kbroker.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kbroker.wire.records.versioned import decode_versioned, encode_versioned
from tests.groups.consumer_harness import Consumer, ConsumerShard, settle
from tests.groups.harness import GROUP, Member
from tests.groups.test_consumer_machine import check_owners, state


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    """Partitions of the topic ``t``, as a classic leader gives them."""
    topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=user_data), 1)


class ClassicClient(Member):
    """A classic consumer with a cooperative assignor: it takes what it gets, and tells what it owns."""

    def __init__(self, shard: ConsumerShard, **options: object) -> None:
        super().__init__(shard, **options)  # type: ignore[arg-type]
        self.owned: set[int] = set()

    def rejoin(self) -> None:
        owned = [TopicPartition(topic="t", partitions=sorted(self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
        self.protocols = [(self.protocols[0][0], encode_versioned(subscription, 1))]
        self.join()
        if self.joined is not None and not self.joined.error_code:
            self.take()

    def take(self) -> ErrorCode:
        """Sync, and take the assignment."""
        self.sync()
        assert self.synced is not None
        if not self.synced.error_code and self.synced.assignment:
            decoded, _ = decode_versioned(ConsumerProtocolAssignment, self.synced.assignment)
            self.owned = {index for topic in decoded.assigned_partitions for index in topic.partitions}
        return ErrorCode(self.synced.error_code)

    def poll(self) -> None:
        """Send a heartbeat, and join again where it says so."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()


def classic_group(shard: ConsumerShard, shares: dict[int, list[int]]) -> list[ClassicClient]:
    """A stable classic group whose members have these partitions of ``t``."""
    clients = [ClassicClient(shard) for _ in shares]
    for client in clients:
        client.rejoin()
    shard.advance(2 * shard.settings.group_initial_rebalance_delay_ms)
    leader = next(client for client in clients if client.is_leader)
    for client in clients:
        if client is not leader:
            client.sync()
    leader.sync({client.member_id: assignment(*shares[index]) for index, client in enumerate(clients)})
    for index, client in enumerate(clients):
        client.owned = set(shares[index])
    return clients


def go_on(shard: ConsumerShard, classic: list[ClassicClient], consumers: list[Consumer]) -> None:
    """Everybody sends heartbeats, a second apart."""
    for _ in range(8):
        for client in classic:
            client.poll()
        for consumer in consumers:
            consumer.heartbeat()
        shard.advance(1_000)
        check_owners(shard.group)


def all_partitions(classic: list[ClassicClient], consumers: list[Consumer]) -> list[int]:
    read = [partition for client in classic for partition in client.owned]
    return sorted(read + [partition for consumer in consumers for _, partition in consumer.partitions])


def mixed_group(shard: ConsumerShard) -> tuple[list[ClassicClient], Consumer]:
    """A settled group of two classic members and one that changed it to the consumer protocol."""
    classic = classic_group(shard, {0: [0, 1, 2], 1: [3, 4, 5]})
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    go_on(shard, classic, [consumer])
    return classic, consumer


def test_a_consumer_joins_a_classic_group() -> None:
    shard = ConsumerShard()
    classic = classic_group(shard, {0: [0, 1, 2], 1: [3, 4, 5]})
    generation = classic[0].generation_id
    consumer = Consumer(shard, member_id="c")
    response = consumer.heartbeat()
    assert response is not None and consumer.partitions == set()
    group = shard.group
    assert group.classic_member_count == 2 and group.group_epoch == generation + 1
    assert GROUP not in shard.core.groups.classic
    assert classic[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    go_on(shard, classic, [consumer])
    assert all_partitions(classic, [consumer]) == list(range(6))
    assert [len(client.owned) for client in classic] == [2, 2] and len(consumer.partitions) == 2
    assert shard.group.state.value == "Stable"
    types = [member.member_type for member in shard.core.admin.describe_consumer_group(GROUP).members]
    assert sorted(types) == [0, 0, 1]
    assert state(shard.reloaded().core) == state(shard.core)


def test_the_last_classic_member_changes_over_by_leaving() -> None:
    shard = ConsumerShard()
    classic = classic_group(shard, {0: [0, 1, 2], 1: [3, 4, 5]})
    consumers = [Consumer(shard, member_id="c")]
    consumers[0].heartbeat()
    go_on(shard, classic, consumers)
    for number in range(2):
        client = classic.pop()
        assert client.leave() == 0
        consumers.append(Consumer(shard, member_id=f"d{number}"))
        go_on(shard, classic, consumers)
    assert shard.group.classic_member_count == 0 and all_partitions([], consumers) == list(range(6))


def test_the_last_consumer_leaves_and_the_group_is_classic_again() -> None:
    shard = ConsumerShard()
    classic, consumer = mixed_group(shard)
    epoch = shard.group.group_epoch
    consumer.leave()
    assert GROUP not in shard.core.groups.consumer
    group = shard.core.groups.classic[GROUP]
    assert (group.generation_id, set(group.members)) == (epoch, {client.member_id for client in classic})
    # They are asked to join again, and one of them leads.
    assert {client.heartbeat() for client in classic} <= {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
    for client in classic:
        client.join()
    assert sum(client.is_leader for client in classic) == 1
    leader = next(client for client in classic if client.is_leader)
    leader.sync({client.member_id: assignment(index) for index, client in enumerate(classic)})
    assert leader.synced is not None and leader.synced.error_code == 0
    reloaded = shard.reloaded()
    assert reloaded.core.admin.describe_group(GROUP, 6).group_state == "Stable"
    assert not reloaded.core.groups.consumer


def test_a_group_that_is_classic_again_rebalances_with_the_next_coordinator_if_not_with_this() -> None:
    shard = ConsumerShard()
    classic, consumer = mixed_group(shard)
    shard.hold_appends = True
    consumer.leave()
    reloaded = shard.reloaded()
    for client in classic:
        client.shard = reloaded
        client.generation_id = reloaded.core.groups.classic[GROUP].generation_id
    assert {client.heartbeat() for client in classic} == {ErrorCode.REBALANCE_IN_PROGRESS}
    for client in classic:
        client.join()
    assert sum(client.is_leader for client in classic) == 1
    leader = next(client for client in classic if client.is_leader)
    leader.sync({client.member_id: assignment(index) for index, client in enumerate(classic)})
    assert leader.synced is not None and leader.synced.error_code == 0
    again = reloaded.reloaded().core.groups.classic[GROUP]
    assert again.state.value == "Stable" and again.leader_id == leader.member_id


def test_somebody_joins_a_group_that_is_classic_again_but_not_committed_to_be() -> None:
    shard = ConsumerShard()
    classic, consumer = mixed_group(shard)
    shard.hold_appends = True
    consumer.leave()
    group = shard.core.groups.classic[GROUP]
    other = ClassicClient(shard)
    other.join()
    assert len(group.members) == 3
    shard.let_appends(None)
    everyone = [*classic, other]
    for client in classic:
        client.join()
    shard.advance(1_000)
    assert sum(client.is_leader for client in everyone) == 1


def test_members_whose_change_is_not_known_to_be_committed_are_still_timed_out() -> None:
    shard = ConsumerShard()
    classic, consumer = mixed_group(shard)
    shard.hold_appends = True
    late = ClassicClient(shard, session_timeout_ms=6_000)
    late.join()
    shard.let_appends(ErrorCode.REQUEST_TIMED_OUT)
    assert late.member_id in shard.group.members
    for _ in range(7):
        go_on(shard, classic, [consumer])
    assert late.member_id not in shard.group.members
    shard.hold_appends = True
    consumer.leave()
    shard.let_appends(ErrorCode.REQUEST_TIMED_OUT)
    group = shard.core.groups.classic[GROUP]
    assert len(group.members) == 2
    shard.advance(120_000)
    assert not group.members


def test_a_static_consumer_is_replaced_by_a_classic_one() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="c", instance_id="one")
    other = ClassicClient(shard)
    consumer.heartbeat()
    other.rejoin()
    go_on(shard, [other], [consumer])
    assert shard.group.classic_member_count == 1
    again = ClassicClient(shard, instance_id="one")
    again.rejoin()
    assert GROUP in shard.core.groups.classic and again.joined is not None and not again.joined.error_code
    assert set(shard.core.groups.classic[GROUP].members) == {other.member_id, again.member_id}
    assert shard.core.admin.describe_group(GROUP, 6).group_state == "Stable"


def test_a_replaced_static_consumer_had_yet_to_give_up_partitions() -> None:
    """They are somebody else's by the target: without a rebalance of the classic group, nobody would ever get them."""
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="c", instance_id="one")
    consumer.heartbeat()
    other = ClassicClient(shard)
    other.rejoin()
    assert len(consumer.partitions) == 6 and other.owned == set()
    again = ClassicClient(shard, instance_id="one")
    again.rejoin()
    clients = [other, again]
    rebalance = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
    assert GROUP in shard.core.groups.classic and {client.heartbeat() for client in clients} <= rebalance
    for client in clients:
        client.join()
    leader = next(client for client in clients if client.is_leader)
    leader.sync({other.member_id: assignment(0, 1, 2), again.member_id: assignment(3, 4, 5)})
    assert [client.take() for client in clients] == [ErrorCode.NONE, ErrorCode.NONE]
    assert all_partitions(clients, []) == list(range(6))


def test_an_empty_group_takes_the_protocol_of_who_comes() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    consumer.leave()
    (client,) = classic_group(shard, {0: [0]})
    assert GROUP not in shard.core.groups.consumer
    assert state(shard.reloaded().core) == {}
    assert client.leave() == 0
    shard.advance(1_000)
    assert Consumer(shard, member_id="d").heartbeat() is not None
    assert GROUP not in shard.core.groups.classic


def test_who_waits_for_a_rebalance_is_told_to_come_again() -> None:
    shard = ConsumerShard()
    waiting = ClassicClient(shard)
    waiting.join()
    assert waiting.joined is None
    Consumer(shard, member_id="c").heartbeat()
    assert waiting.joined is None or waiting.joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_changes_over_before_the_first_assignment() -> None:
    shard = ConsumerShard()
    classic = [ClassicClient(shard), ClassicClient(shard, instance_id="i")]
    for client in classic:
        client.rejoin()
    shard.advance(2 * shard.settings.group_initial_rebalance_delay_ms)
    group = shard.core.groups.classic[GROUP]
    assert all(client.joined for client in classic)
    assert group.state.value == "CompletingRebalance"  # and who leads it never tells who has what
    consumer = Consumer(shard, member_id="c", instance_id="i")
    consumer.heartbeat()
    assert shard.group.group_epoch == group.generation_id + 1
    go_on(shard, classic[:1], [consumer])
    assert all_partitions(classic[:1], [consumer]) == list(range(6))
    assert state(shard.reloaded().core) == state(shard.core)


def test_a_static_member_changes_over_while_the_group_rebalances_for_another() -> None:
    shard = ConsumerShard()
    static = ClassicClient(shard, instance_id="i")
    static.rejoin()
    shard.advance(2 * shard.settings.group_initial_rebalance_delay_ms)
    static.sync({static.member_id: assignment(*range(6))})
    other = ClassicClient(shard)
    other.rejoin()
    assert shard.core.groups.classic[GROUP].state.value == "PreparingRebalance"
    consumer = Consumer(shard, member_id="c", instance_id="i")
    consumer.heartbeat()
    assert other.joined is not None and other.joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    other.rejoin()
    go_on(shard, [other], [consumer])
    assert len(other.owned) == 3 and all_partitions([other], [consumer]) == list(range(6))


def test_a_static_member_of_a_stable_group_changes_over_and_nobody_is_disturbed() -> None:
    shard = ConsumerShard()
    static, other = ClassicClient(shard, instance_id="i"), ClassicClient(shard)
    for client in (static, other):
        client.rejoin()
    shard.advance(2 * shard.settings.group_initial_rebalance_delay_ms)
    leader, follower = (static, other) if static.is_leader else (other, static)
    follower.sync()
    leader.sync({static.member_id: assignment(0, 1, 2), other.member_id: assignment(3, 4, 5)})
    generation = shard.core.groups.classic[GROUP].generation_id
    consumer = Consumer(shard, member_id="c", instance_id="i")
    consumer.heartbeat()
    assert shard.group.group_epoch == generation and consumer.partitions == {("t", 0), ("t", 1), ("t", 2)}
    assert other.heartbeat() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades", "joins"),
    [
        ("disabled", False, False, False),
        ("UPGRADE", True, False, True),
        ("downgrade", False, True, True),
        ("bidirectional", True, True, True),
    ],
)
def test_the_migration_policy(policy: str, upgrades: bool, downgrades: bool, joins: bool) -> None:
    shard = ConsumerShard(consumer_migration_policy=policy)
    classic_group(shard, {0: [0, 1, 2, 3, 4, 5]})
    consumer = Consumer(shard, member_id="c")
    assert (consumer.heartbeat() is not None) is upgrades
    if not upgrades:
        assert consumer.error is ErrorCode.GROUP_ID_NOT_FOUND and "online upgrade is disabled" in str(consumer.message)
    shard = ConsumerShard(consumer_migration_policy=policy)
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    client = ClassicClient(shard)
    client.rejoin()
    assert client.joined is not None
    assert client.joined.error_code == (ErrorCode.NONE if joins else ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    consumer.leave()
    assert (GROUP in shard.core.groups.classic) is (downgrades and joins)


def test_classic_members_alone_in_a_consumer_group_get_a_target() -> None:
    shard = ConsumerShard(consumer_migration_policy="upgrade")
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    client = ClassicClient(shard)
    client.rejoin()  # too early for another target
    consumer.leave()
    assert shard.group.assignment_epoch < shard.group.group_epoch and not client.owned
    go_on(shard, [client], [])
    assert client.owned == set(range(6))


def test_groups_that_cannot_be_upgraded() -> None:
    shard = ConsumerShard()
    connect = Member(shard)
    connect.protocol_type, connect.protocols = "connect", [("eager", b"x")]
    connect.join()
    consumer = Consumer(shard, member_id="c")
    assert consumer.heartbeat() is None and "embedded protocol" in str(consumer.message)
    shard = ConsumerShard()
    (client,) = classic_group(shard, {0: [0]})
    client.join()
    client.sync({client.member_id: assignment(0, user_data=b"sticky")})
    consumer = Consumer(shard, member_id="c")
    assert consumer.heartbeat() is None and "custom assignor" in str(consumer.message)
    assert GROUP in shard.core.groups.classic and client.heartbeat() is ErrorCode.NONE


def test_partitions_that_a_leader_gave_twice_have_one_owner() -> None:
    shard = ConsumerShard()
    classic = classic_group(shard, {0: [0, 1, 2], 1: [2, 3, 99]})
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    check_owners(shard.group)
    go_on(shard, classic, [consumer])
    assert len(consumer.partitions) == 2


def test_classic_members_that_do_not_keep_up() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    silent = ClassicClient(shard, session_timeout_ms=6_000)
    silent.join()
    shard.advance(1_000)
    assert silent.member_id in shard.group.members
    shard.advance(6_000)
    assert silent.member_id not in shard.group.members
    # Alive by its heartbeats, but it does not come when it is called.
    lazy = ClassicClient(shard, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    lazy.rejoin()
    go_on(shard, [lazy], [consumer])
    other = Consumer(shard, member_id="d")
    for _ in range(12):
        consumer.heartbeat()
        other.heartbeat()
        lazy.heartbeat()
        shard.advance(1_000)
    assert lazy.member_id not in shard.group.members


def test_classic_requests_that_do_not_fit() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="c")
    consumer.heartbeat()
    client = ClassicClient(shard)
    client.rejoin()
    client.generation_id += 5
    assert client.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    stranger = ClassicClient(shard)
    stranger.member_id, stranger.generation_id = "c", consumer.epoch
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "c is not a classic member"
    other = ClassicClient(shard, protocols=("roundrobin",))
    other.rejoin()
    assert other.joined is not None and other.joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_subscriptions_and_assignments_by_version() -> None:
    newer = encode_versioned(ConsumerProtocolSubscription(topics=["t"], rack_id="r"), 3)
    newer = b"\0\x09" + newer[2:]
    assert decode_subscription(newer).rack_id == "r"
    shard = ConsumerShard()
    topic = shard.topics.by_name("t")
    assert topic is not None
    written = encode_assignment({topic.id: frozenset({1, 0})}, shard.topics, newer)
    assert written == b"\0\3" + assignment(0, 1)[2:]


def test_settled_after_any_number_of_changes() -> None:
    shard = ConsumerShard()
    classic = classic_group(shard, {0: [0, 1], 1: [2, 3], 2: [4, 5]})
    consumers: list[Consumer] = []
    for number in range(3):
        consumers.append(Consumer(shard, member_id=f"c{number}"))
        go_on(shard, classic, consumers)
        classic.pop().leave()
        go_on(shard, classic, consumers)
    settle(shard, consumers)
    assert all_partitions(classic, consumers) == list(range(6))
