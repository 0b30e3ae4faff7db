"""The assignor of share groups: every partition is read, everybody has about as much, and who has keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.cores.groups.assignors.simple import SimpleAssignor
from kbroker.cores.groups.assignors.spec import Assignment, GroupSpec, MemberSpec
from kbroker.types import Uuid

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def assign(
    members: dict[str, set[Uuid]], partitions: dict[Uuid, int], had: dict[str, Assignment] | None = None
) -> dict[str, Assignment]:
    specs = {
        name: MemberSpec(name, subscribed_topic_ids=frozenset(topics), assigned=(had or {}).get(name, {}))
        for name, topics in members.items()
    }
    assignable = {topic_id: frozenset(range(count)) for topic_id, count in partitions.items()}
    return SimpleAssignor().assign(GroupSpec.of(specs), assignable)


def test_fewer_members_than_partitions_have_each_its_own() -> None:
    found = assign({"a": {T}, "b": {T}}, {T: 4})
    assert found["a"][T] | found["b"][T] == {0, 1, 2, 3}
    assert len(found["a"][T]) == len(found["b"][T]) == 2


def test_more_members_than_partitions_read_together() -> None:
    found = assign({name: {T} for name in "abcde"}, {T: 2})
    assert all(found[name] for name in found)


def test_partitions_without_a_state_are_not_assigned() -> None:
    assert assign({"a": {T, U}}, {U: 1}) == {"a": {U: frozenset({0})}}
    assert assign({"a": {T}}, {}) == {"a": {}}


def test_nothing_moves_without_a_reason() -> None:
    first = assign({name: {T, U} for name in "abc"}, {T: 3, U: 5})
    assert assign({name: {T, U} for name in "abc"}, {T: 3, U: 5}, first) == first


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from([T, U])), min_size=1),
    st.dictionaries(st.sampled_from([T, U]), st.integers(1, 7)),
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.dictionaries(st.sampled_from([T, U]), st.frozensets(st.integers(0, 8)))
    ),
)
def test_every_partition_with_a_subscriber_is_read_by_subscribers_alone(
    members: dict[str, set[Uuid]], partitions: dict[Uuid, int], had: dict[str, Assignment]
) -> None:
    found = assign(members, partitions, had)
    assert set(found) == set(members)
    for topic_id, count in partitions.items():
        readers = {name for name, topics in members.items() if topic_id in topics}
        assert {name for name in found if topic_id in found[name]} <= readers
        read = {partition for name in found for partition in found[name].get(topic_id, ())}
        assert read == (set(range(count)) if readers else set())
    if len({frozenset(topics) for topics in members.values()}) == 1:
        sizes = [sum(len(each) for each in assignment.values()) for assignment in found.values()]
        assert max(sizes) - min(sizes) <= 1
