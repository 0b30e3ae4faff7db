"""Server-side assignors: every partition once, only to subscribers; balanced, sticky, repeatable."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.groups.assignors import ASSIGNORS, AssignorError, GroupSpec, MemberSpec
from kbroker.types import Uuid

Target = dict[str, dict[Uuid, frozenset[int]]]

UNIFORM = ASSIGNORS["uniform"]
RANGE = ASSIGNORS["range"]


class Topics(dict[Uuid, int]):
    def partition_count(self, topic_id: Uuid) -> int:
        return self.get(topic_id, -1)


def topic(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


A, B, C = topic(1), topic(2), topic(3)


def group(subscriptions: Mapping[str, frozenset[Uuid]], assigned: Target | None = None) -> GroupSpec:
    return GroupSpec.of(
        {
            member_id: MemberSpec(member_id, subscribed_topic_ids=topics, assigned=(assigned or {}).get(member_id, {}))
            for member_id, topics in subscriptions.items()
        }
    )


def owners(target: Target) -> dict[tuple[Uuid, int], str]:
    found: dict[tuple[Uuid, int], str] = {}
    for member_id, topics in target.items():
        for topic_id, partitions in topics.items():
            assert partitions, "a topic without partitions is left out"
            for partition in partitions:
                assert (topic_id, partition) not in found, "two owners"
                found[topic_id, partition] = member_id
    return found


def sizes(target: Target) -> list[int]:
    return [sum(map(len, topics.values())) for topics in target.values()]


def check(spec: GroupSpec, topics: Topics, target: Target) -> None:
    assert set(target) == set(spec.members)
    found = owners(target)
    for (topic_id, _), member_id in found.items():
        assert topic_id in spec.members[member_id].subscribed_topic_ids
    subscribed = frozenset[Uuid]().union(*(member.subscribed_topic_ids for member in spec.members.values()))
    assert set(found) == {(topic_id, partition) for topic_id in subscribed for partition in range(topics[topic_id])}


counts = st.lists(st.integers(0, 12), min_size=1, max_size=6).map(
    lambda numbers: Topics({topic(index): count for index, count in enumerate(numbers)})
)
member_ids = st.sets(st.integers(0, 30), min_size=1, max_size=9).map(lambda ids: [f"m{number:02}" for number in ids])


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool | None = None) -> tuple[GroupSpec, Topics]:
    topics = draw(counts)
    members = draw(member_ids)
    some = st.frozensets(st.sampled_from(sorted(topics)))
    if draw(st.booleans()) if homogeneous is None else homogeneous:
        same = draw(some)
        return group(dict.fromkeys(members, same)), topics
    return group({member: draw(some) for member in members}), topics


@pytest.mark.parametrize("name", ASSIGNORS)
@given(case=groups())
def test_every_partition_goes_to_exactly_one_subscriber(name: str, case: tuple[GroupSpec, Topics]) -> None:
    spec, topics = case
    target = ASSIGNORS[name].assign(spec, topics)
    check(spec, topics, target)
    shuffled = GroupSpec(dict(reversed(list(spec.members.items()))), spec.homogeneous)
    assert ASSIGNORS[name].assign(shuffled, topics) == target, "the order of members in the mapping plays no part"


@given(case=groups(homogeneous=True))
def test_uniform_is_balanced_to_one(case: tuple[GroupSpec, Topics]) -> None:
    found = sizes(UNIFORM.assign(*case))
    assert max(found) - min(found) <= 1


@given(case=groups())
def test_uniform_keeps_an_assignment_that_is_as_good_as_any(case: tuple[GroupSpec, Topics]) -> None:
    spec, topics = case
    target = UNIFORM.assign(spec, topics)
    again = UNIFORM.assign(with_assigned(spec, target), topics)
    assert again == target
    for member_id, partitions in target.items():
        for topic_id, kept in partitions.items():
            assert again[member_id][topic_id] is kept, "unchanged sets are not copied"


def with_assigned(spec: GroupSpec, target: Target) -> GroupSpec:
    return GroupSpec.of(
        {member_id: member._replace(assigned=target.get(member_id, {})) for member_id, member in spec.members.items()}
    )


@given(case=groups(homogeneous=True))
def test_a_member_that_joins_moves_only_what_it_gets(case: tuple[GroupSpec, Topics]) -> None:
    spec, topics = case
    before = UNIFORM.assign(spec, topics)
    newcomer = next(iter(spec.members.values()))._replace(member_id="m99", assigned={})
    joined = with_assigned(GroupSpec({**spec.members, "m99": newcomer}, True), before)
    after = UNIFORM.assign(joined, topics)
    check(joined, topics, after)
    old, new = owners(before), owners(after)
    assert all(new[partition] == "m99" for partition in new if new[partition] != old[partition])


@given(case=groups(homogeneous=True))
def test_when_a_member_leaves_the_others_keep_what_they_have(case: tuple[GroupSpec, Topics]) -> None:
    spec, topics = case
    before = UNIFORM.assign(spec, topics)
    gone = min(spec.members)
    rest = GroupSpec.of({member_id: member for member_id, member in spec.members.items() if member_id != gone})
    after = UNIFORM.assign(with_assigned(rest, before), topics)
    if rest.members:
        check(rest, topics, after)
        new = owners(after)
        assert all(new[partition] == owner for partition, owner in owners(before).items() if owner != gone)


@given(case=groups(), wild=st.data())
def test_assignments_from_elsewhere_are_sorted_out(case: tuple[GroupSpec, Topics], wild: st.DataObject) -> None:
    """A converted classic group's clients may have assigned a partition twice, or one that does not exist."""
    spec, topics = case
    anything = st.dictionaries(
        st.sampled_from([*topics, topic(99)]), st.frozensets(st.integers(-1, 14), min_size=1), max_size=4
    )
    found = {member_id: wild.draw(anything) for member_id in spec.members}
    spec = with_assigned(spec, found)
    check(spec, topics, UNIFORM.assign(spec, topics))


@given(case=groups(homogeneous=False))
def test_no_move_would_improve_a_topics_balance(case: tuple[GroupSpec, Topics]) -> None:
    """Unless the rounds ran out, which takes longer chains of overlapping subscriptions than these."""
    spec, topics = case
    target = UNIFORM.assign(spec, topics)
    size = dict(zip(target, sizes(target), strict=True))
    for (topic_id, _), owner in owners(target).items():
        subscribers = [m for m, member in spec.members.items() if topic_id in member.subscribed_topic_ids]
        assert size[owner] - min(size[member] for member in subscribers) <= 1


def test_uniform_moves_partitions_to_members_of_other_subscriptions() -> None:
    topics = Topics({A: 6, B: 2})
    spec = group(
        {"m1": frozenset({A}), "m2": frozenset({A, B}), "m3": frozenset({B})},
        {"m1": {A: frozenset(range(6))}, "m2": {B: frozenset({0, 1})}},
    )
    target = UNIFORM.assign(spec, topics)
    check(spec, topics, target)
    assert sizes(target) == [3, 3, 2]


def test_uniform_takes_away_what_is_no_longer_subscribed() -> None:
    had: Target = {"m1": {B: frozenset({0, 1})}, "m2": {A: frozenset({0})}}
    spec = group({"m1": frozenset({A}), "m2": frozenset({B})}, had)
    assert UNIFORM.assign(spec, Topics({A: 2, B: 2})) == {"m1": {A: frozenset({0, 1})}, "m2": {B: frozenset({0, 1})}}


def test_range_gives_contiguous_ranges_and_co_partitions() -> None:
    spec = group(dict.fromkeys(["m1", "m2"], frozenset({A, B})))
    first, second = frozenset({0, 1}), frozenset({2})
    assert RANGE.assign(spec, Topics({A: 3, B: 3})) == {"m1": {A: first, B: first}, "m2": {A: second, B: second}}


def test_range_with_more_members_than_partitions() -> None:
    spec = group(dict.fromkeys(["m1", "m2", "m3"], frozenset({A})))
    assert RANGE.assign(spec, Topics({A: 2})) == {"m1": {A: frozenset({0})}, "m2": {A: frozenset({1})}, "m3": {}}


def test_range_with_different_subscriptions() -> None:
    spec = group({"m1": frozenset({A, B}), "m2": frozenset({B, C}), "m3": frozenset({B})})
    assert RANGE.assign(spec, Topics({A: 2, B: 3, C: 1})) == {
        "m1": {A: frozenset({0, 1}), B: frozenset({0})},
        "m2": {B: frozenset({1}), C: frozenset({0})},
        "m3": {B: frozenset({2})},
    }


def test_range_puts_static_members_first_by_instance_id() -> None:
    members = {
        "a": MemberSpec("a", None, None, frozenset({A})),
        "z": MemberSpec("z", "i1", None, frozenset({A})),
        "y": MemberSpec("y", "i2", None, frozenset({A})),
    }
    target = RANGE.assign(GroupSpec.of(members), Topics({A: 3}))
    assert target == {"z": {A: frozenset({0})}, "y": {A: frozenset({1})}, "a": {A: frozenset({2})}}
    # A static member that comes back under another member id has its range again.
    members["b"] = members.pop("z")._replace(member_id="b")
    assert RANGE.assign(GroupSpec.of(members), Topics({A: 3}))["b"] == target["z"]


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("other", [A, C])
def test_an_unknown_topic_is_an_error(name: str, other: Uuid) -> None:
    spec = group({"m1": frozenset({B}), "m2": frozenset({other})})
    with pytest.raises(AssignorError, match="does not exist"):
        ASSIGNORS[name].assign(group({"m1": frozenset({B})}), Topics({A: 1}))
    with pytest.raises(AssignorError, match="does not exist"):
        ASSIGNORS[name].assign(spec, Topics({A: 1, C: 1}))


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing(name: str) -> None:
    assert ASSIGNORS[name].assign(GroupSpec.of({}), Topics()) == {}
    assert ASSIGNORS[name].assign(group({"m1": frozenset()}), Topics()) == {"m1": {}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("kind", ["homogeneous", "heterogeneous"])
def test_a_large_group_takes_no_longer_than_a_large_group_may(name: str, kind: str) -> None:
    topics = Topics({topic(number): 100 for number in range(100)})
    everything = frozenset(topics)
    subscriptions = {
        f"m{number}": everything if kind == "homogeneous" else everything - {topic(number % 100)}
        for number in range(1_000)
    }
    begin = time.process_time()
    target = ASSIGNORS[name].assign(group(subscriptions), topics)
    # 20 to 150 ms when measured; the bound only tells of something quadratic.
    assert time.process_time() - begin < 3.0
    assert sum(sizes(target)) == 10_000
