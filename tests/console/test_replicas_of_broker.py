"""A broker's page tells what it leads, and where it is behind."""

from __future__ import annotations

from kbroker.client.topics import PartitionDescription, TopicDescription
from kbroker.tools.console.api.brokers import MAX_TOPICS, replicas_of
from kbroker.types import ZERO_UUID


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...], tuple[int, ...]]) -> TopicDescription:
    """``partitions``: (leader, replicas, ISR)."""
    entries = (
        PartitionDescription(number, leader, 0, replicas, isr, ())
        for number, (leader, replicas, isr) in enumerate(partitions)
    )
    return TopicDescription(name, ZERO_UUID, False, tuple(entries))


def test_what_a_broker_leads_comes_first() -> None:
    quiet = topic("a", (2, (1, 2), (2,)))
    orders = topic("b", (1, (1, 2), (1, 2)), (2, (2, 3), (2, 3)), (1, (1, 3), (1, 3)))
    elsewhere = topic("c", (2, (2, 3), (2, 3)))
    assert replicas_of(1, [quiet, orders, elsewhere]) == {
        "topics": [
            {"topic": "b", "leads": [0, 2], "out_of_sync": [], "replicas": 2},
            {"topic": "a", "leads": [], "out_of_sync": [0], "replicas": 1},
        ],
        "topics_count": 2,
        "leads": 2,
        "replicas": 3,
    }


def test_the_topics_of_a_broker_are_bounded() -> None:
    told = replicas_of(1, [topic(f"t{number}", (1, (1,), (1,))) for number in range(MAX_TOPICS + 5)])
    assert isinstance(told["topics"], list)
    assert (len(told["topics"]), told["topics_count"], told["leads"]) == (MAX_TOPICS, MAX_TOPICS + 5, MAX_TOPICS + 5)
