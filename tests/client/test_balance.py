"""The balancer's plans: over any cluster they relieve the most loaded broker, keep racks apart, and come to an end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.balance import IDLE, TOLERANCE, Load, Placed, loads_of, plan_balance
from kbroker.types import TopicPartition

Cluster = dict[TopicPartition, Placed]


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def placed(*replicas: int, lead: float = 0.1, follow: float = 0.01, size: int = 1000, trouble: bool = False) -> Placed:
    return Placed(replicas, replicas[0], frozenset(replicas), size, Load(lead, follow), trouble)


def apply(cluster: Cluster, plan_moves: list[tuple[TopicPartition, tuple[int, ...]]]) -> Cluster:
    after = dict(cluster)
    for name, replicas in plan_moves:
        after[name] = replace(after[name], replicas=replicas, leader=replicas[0], isr=frozenset(replicas))
    return after


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Cluster, dict[int, str | None]]:
    """Up to nine brokers in up to three racks, with partitions of one to three replicas, some of them hot."""
    racks: dict[int, str | None] = {
        broker: f"rack {draw(st.integers(1, 3))}" for broker in range(1, draw(st.integers(2, 9)) + 1)
    }
    cluster: Cluster = {}
    for number in range(draw(st.integers(1, 20))):
        replicas = draw(st.lists(st.sampled_from(sorted(racks)), min_size=1, max_size=3, unique=True))
        lead = draw(st.one_of(st.just(0.0), st.floats(0, 0.05), st.floats(0.2, 1)))
        each = placed(*replicas, lead=lead, follow=lead * draw(st.floats(0, 0.5)), trouble=draw(st.integers(0, 9)) == 0)
        cluster[partition(number)] = replace(each, isr=frozenset(draw(st.permutations(replicas))[: len(replicas)]))
    return cluster, racks


@given(clusters(), st.booleans())
def test_rounds_of_moves_end_and_each_helps(
    given_cluster: tuple[Cluster, dict[int, str | None]], leaders: bool
) -> None:
    cluster, racks = given_cluster
    squares = sum(load**2 for load in loads_of(cluster, racks).values())
    for _ in range(200):
        plan = plan_balance(cluster, racks, most=3, only_leaders=leaders)
        if not plan.moves:
            break
        assert len({move.partition for move in plan.moves}) == len(plan.moves) <= 3
        for move in plan.moves:
            old = cluster[move.partition]
            assert not old.is_in_trouble
            assert len(set(move.replicas)) == len(old.replicas) and set(move.replicas) <= set(racks)
            assert len({racks[each] for each in move.replicas}) >= len({racks[each] for each in old.replicas})
            if leaders:
                assert set(move.replicas) == set(old.replicas) and move.copied == 0
        cluster = apply(cluster, [(move.partition, move.replicas) for move in plan.moves])
        loads = loads_of(cluster, racks)
        assert all(abs(loads[broker] - plan.after[broker]) < 1e-9 for broker in racks)
        now = sum(load**2 for load in loads.values())
        assert now < squares  # so no course of rounds comes back to where it was
        squares = now
    else:
        raise AssertionError("it moves for ever")
    loads = loads_of(cluster, racks)
    is_even = max(loads.values()) <= max(TOLERANCE * sum(loads.values()) / len(loads), IDLE)
    assert is_even or plan.notes


def test_another_leader_is_preferred_to_a_copy() -> None:
    cluster = {partition(number): placed(1, 2 + number % 2) for number in range(3)}
    plan = plan_balance(cluster, dict.fromkeys((1, 2, 3, 4), None), most=5)
    assert [(move.replicas, move.copied) for move in plan.moves[:2]] == [((2, 1), 0), ((3, 1), 0)]


def test_the_hot_broker_gives_to_one_that_has_nothing() -> None:
    cluster = {partition(number): placed(1, lead=0.2) for number in range(4)}
    plan = plan_balance(cluster, {1: "a", 2: "b"}, most=5)
    assert [move.replicas for move in plan.moves] == [(2,), (2,)]
    assert all(abs(load - 0.4) < 1e-9 for load in plan.after.values())
    assert plan.moves[0].copied == 1000


def test_another_node_of_the_machine_is_preferred_to_a_copy() -> None:
    """Broker 3 is as free as broker 2, and on the machine of broker 1, which hands the log over."""
    cluster = {partition(number): placed(1, lead=0.2) for number in range(4)}
    plan = plan_balance(cluster, {1: "a", 2: "b", 3: "a"}, most=1, hosts={1: "one", 2: "two", 3: "one"})
    assert [(move.replicas, move.copied) for move in plan.moves] == [((3,), 0)]
    far = plan_balance(cluster, {1: "a", 2: "b", 3: "a"}, most=1, hosts={1: "one", 2: "two", 3: "three"})
    assert [(move.replicas, move.copied) for move in far.moves] == [((2,), 1000)]


def test_a_broker_that_takes_nothing_new_still_has_its_rack() -> None:
    """Broker 3 takes nothing new: broker 4, of its rack, gets no second replica of what it has."""
    cluster = {partition(number): placed(1, 3, lead=0.3) for number in range(3)}
    racks: dict[int, str | None] = {1: "a", 3: "b", 4: "b", 5: "c"}
    plan = plan_balance(cluster, racks, most=3, closed=[3])
    assert {move.replicas for move in plan.moves} == {(5, 3)}


def test_what_rests_or_is_in_trouble_stays() -> None:
    cluster = {partition(0): placed(1, 2), partition(1): placed(1, 2, trouble=True), partition(2): placed(1, 2)}
    plan = plan_balance(cluster, {1: None, 2: None}, most=5, resting=[partition(0)])
    assert {move.partition for move in plan.moves} <= {partition(2)}


def test_one_partition_that_is_too_hot_is_named() -> None:
    plan = plan_balance({partition(0): placed(1, lead=0.9)}, {1: "a", 2: "b"}, most=5)
    assert not plan.moves
    assert "orders-0 with 90.0% of a core: more partitions can be spread" in plan.notes[0]


def test_an_idle_cluster_is_left_alone() -> None:
    plan = plan_balance({partition(0): placed(1, 2, lead=0.004, follow=0.001)}, {1: None, 2: None}, most=5)
    assert not plan.moves and plan.notes == ["no broker has more load than 0.5% of a core: nothing to move"]
