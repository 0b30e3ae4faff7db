"""Topics as a list and as a tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.console.topic_list import branches, choose
from kbroker.types import ZERO_UUID


def topic(name: str, partitions: int = 1, *, leader: int | None = 1, isr: tuple[int, ...] = (1,)) -> TopicDescription:
    entries = tuple(PartitionDescription(number, leader, 0, (1,), isr, ()) for number in range(partitions))
    return TopicDescription(name, ZERO_UUID, name.startswith("__"), entries)


def test_a_list_is_filtered_by_every_word() -> None:
    topics = [topic(name) for name in ("__consumer_offsets", "shop.eu.Orders", "shop.us.orders", "shop.us.returns")]
    assert [each.name for each in choose(topics, text="orders SHOP")] == ["shop.eu.Orders", "shop.us.orders"]
    assert [each.name for each in choose(topics, internal=True, text="_")] == ["__consumer_offsets"]


def test_a_list_is_sorted_and_equals_stay_by_name() -> None:
    topics = [topic("a", 2), topic("b", 9), topic("c", 2)]
    assert [each.name for each in choose(topics, sort="partitions", descending=True)] == ["b", "a", "c"]
    assert [each.name for each in choose(topics, sort="size", sizes={"c": 5})] == ["a", "b", "c"]
    assert [each.name for each in choose(topics, descending=True)] == ["c", "b", "a"]


def test_only_those_in_trouble() -> None:
    topics = [topic("well"), topic("dead", leader=None), topic("short", isr=())]
    assert [each.name for each in choose(topics, troubled=True)] == ["dead", "short"]


def test_a_tree_cuts_after_separators_and_passes_over_single_branches() -> None:
    topics = [topic(name) for name in ("audit", "shop.eu.orders", "shop.eu.returns", "x-y.z", "x-y.z.a")]
    assert [(each.prefix, each.topic, each.topics) for each in branches(topics, "")] == [
        ("audit", True, 1),
        ("shop.eu.", False, 2),
        ("x-y.", False, 2),
    ]
    assert [each.prefix for each in branches(topics, "x-y.")] == ["x-y.z", "x-y.z.a"]


NAMES = st.lists(st.text("ab.-_", min_size=1, max_size=8), min_size=1, max_size=25, unique=True)


@given(names=NAMES)
def test_the_tree_has_each_topic_once(names: list[str]) -> None:
    topics = [topic(name) for name in sorted(names)]
    found: list[str] = []

    def descend(prefix: str) -> int:
        total = 0
        for branch in branches(topics, prefix):
            if branch.topic:
                found.append(branch.prefix)
                total += 1
            else:
                assert len(branch.prefix) > len(prefix)
                assert descend(branch.prefix) == branch.topics
                total += branch.topics
        return total

    assert descend("") == len(names)
    assert sorted(found) == sorted(names)


def test_a_hundred_thousand_topics_are_filtered_and_cut() -> None:
    one = topic("one")
    names = sorted(f"team-{number % 100:02}.service-{number % 1000}.topic-{number}" for number in range(100_000))
    topics = [TopicDescription(name, ZERO_UUID, False, one.partitions) for name in names]
    assert len(choose(topics, text="team-07. topic-77707", sort="size", sizes={})) == 1
    assert [each.prefix for each in branches(topics, "")] == ["team-"]
    assert len(branches(topics, "team-")) == 100
