"""The reasons why a group gets nothing: its records are gone, or its topic is."""

from __future__ import annotations

import pytest

from kbroker.client.lost_records import ERROR, WARNING, losses
from kbroker.types import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("committed", "limits"),
    [
        (5, (0, 9)),  # it has records to read
        (5, (5, 9)),
        (9, (0, 9)),  # it has all of them
        (9, (9, 9)),  # and they are gone since
        (None, (0, 9)),
        (None, (4, 9)),
    ],
)
def test_what_is_there_or_was_read_is_not_lost(committed: int | None, limits: tuple[int, int]) -> None:
    assert losses({} if committed is None else {ONE: committed}, {ONE: limits}) == []


def test_the_first_records_are_gone() -> None:
    [found] = losses({ONE: 4}, {ONE: (12, 20)})
    assert found.text == (
        "orders-0: 8 records before offset 12 are gone, and the group has not had them: it stands at offset 4."
    )
    assert (found.severity, found.partition, found.offset) == (ERROR, ONE, 12)


def test_all_records_are_gone() -> None:
    [found] = losses({ONE: 4}, {ONE: (12, 12)})
    assert found.text == (
        "orders-0: nothing is left to read, all that the group's lag of 8 counts is gone:"
        " it stands at offset 4, and the log is empty up to 12."
    )
    assert (found.severity, found.partition) == (WARNING, None) and "next record" in found.advice
    [found] = losses({ONE: 4, TWO: 11}, {ONE: (12, 12), TWO: (12, 12)})
    assert found.text.startswith("orders, 2 partitions: nothing is left to read, all that the group's lag of 9")


def test_the_log_ends_before_the_group() -> None:
    """Its topic was made anew, or its log was cut."""
    [found] = losses({ONE: 1000}, {ONE: (0, 3)})
    assert found.text == "orders-0: the group stands at offset 1,000, and the log ends at offset 3."
    assert (found.severity, found.partition, found.offset) == (ERROR, ONE, 0)
    [found] = losses({ONE: 1000, TWO: 7}, {ONE: (0, 0), TWO: (2, 3)})
    assert found.text.startswith("orders, 2 partitions: ") and (found.partition, found.offset) == (TWO, 2)
    [found] = losses({ONE: 1000}, {ONE: (0, 0)})
    assert found.partition is None


def test_there_is_nothing_to_read_yet() -> None:
    [found] = losses({}, {ONE: (0, 0), TWO: (0, 0)})
    assert found.text == "orders, 2 partitions: there is nothing to read: the logs are empty."
    assert found.severity == WARNING and found.advice.startswith("Nothing has been written")
    [found] = losses({}, {ONE: (5, 5)})
    assert found.advice.startswith("Retention, or somebody, has deleted all")
    # Empty partitions beside others are nothing to tell of.
    assert losses({}, {ONE: (0, 0), TWO: (0, 1)}) == losses({TWO: 1}, {ONE: (0, 0), TWO: (0, 1)}) == []


def test_a_topic_is_not_there() -> None:
    first, second = losses({ONE: 4}, {ONE: (12, 20)}, {"paid": 1})
    assert first.text == "paid: there is no such topic, and 1 member subscribes to it."
    assert first.severity == ERROR and second.partition == ONE
    assert "2 members subscribe" in losses({}, {}, {"paid": 2})[0].text
