"""Reports about committed offsets: what a group has, and what it has once its coordinator has read its log again."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from compat_tests.brokers import Broker
from compat_tests.reports.asked import LATEST, Asked
from compat_tests.reports.committed import (
    UNSTABLE,
    Scenario,
    commit,
    delete,
    eventually_stable,
    fetched,
    new_group,
    stage,
)
from kbroker.wire.messages.groups import DeleteGroupsRequest
from tests.patience import eventually

OFFSETS = "__consumer_offsets"


def plain_after_staged(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert stage(asked, producer, group, topic, 10) == 0
    assert commit(asked, group, topic, 20) == 0
    asked.end(producer, commit=True)


def plain_after_staged_that_is_aborted(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert commit(asked, group, topic, 5) == 0
    assert stage(asked, producer, group, topic, 10) == 0
    asked.end(producer, commit=False)


def two_transactions(asked: Asked, group: str, topic: str) -> None:
    first, second = asked.init(), asked.init()
    assert stage(asked, first, group, topic, 10) == 0
    assert stage(asked, second, group, topic, 30) == 0
    asked.end(second, commit=True)
    asked.end(first, commit=True)


def expired_while_staged(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert commit(asked, group, topic, 5, keep_ms=100) == 0
    assert stage(asked, producer, group, topic, 10) == 0
    other = new_group(asked)
    assert commit(asked, other, topic, 5, keep_ms=100) == 0
    eventually(lambda: fetched(asked, other, topic) == (0, -1))  # one expires, as nothing is staged
    assert fetched(asked, group, topic)[0] == 0
    asked.end(producer, commit=True)


def nothing_but_staged(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert stage(asked, producer, group, topic, 10) == 0
    other = new_group(asked)
    assert commit(asked, other, topic, 5, keep_ms=100) == 0
    eventually(lambda: fetched(asked, other, topic) == (0, -1))
    asked.end(producer, commit=True)


def deleted_while_staged(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert commit(asked, group, topic, 5) == 0
    assert stage(asked, producer, group, topic, 10) == 0
    assert delete(asked, group, topic) == 0
    asked.end(producer, commit=True)


def group_deleted_while_staged(asked: Asked, group: str, topic: str) -> None:
    producer = asked.init()
    assert commit(asked, group, topic, 5) == 0
    assert stage(asked, producer, group, topic, 10) == 0
    assert asked.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0
    asked.end(producer, commit=True)


def committed_after_deletion(asked: Asked, group: str, topic: str) -> None:
    assert commit(asked, group, topic, 5) == 0
    assert asked.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0
    assert commit(asked, group, topic, 7) == 0


class Kept(NamedTuple):
    """The offset of a scenario's group as it was, after a restart, and after compaction and another."""

    live: int
    restarted: int
    compacted: int


SCENARIOS: dict[Scenario, int] = {
    plain_after_staged: 20,
    plain_after_staged_that_is_aborted: 5,
    two_transactions: 30,
    expired_while_staged: 10,
    nothing_but_staged: 10,
    deleted_while_staged: -1,
    group_deleted_while_staged: -1,
    committed_after_deletion: 7,
}


@pytest.fixture(scope="module")
def kept(asked: Asked, broker: Broker) -> dict[Scenario, Kept]:
    """The offset of each group, live and replayed."""
    topic = asked.topic_with()
    groups = {scenario: new_group(asked) for scenario in SCENARIOS}
    for scenario, group in groups.items():
        scenario(asked, group, topic)
    live = {scenario: eventually_stable(asked, group, topic) for scenario, group in groups.items()}
    asked.again(broker, crash=True)
    restarted = {scenario: eventually_stable(asked, group, topic) for scenario, group in groups.items()}
    compact_offsets(asked, topic)
    asked.again(broker)
    compacted = {scenario: eventually_stable(asked, group, topic) for scenario, group in groups.items()}
    return {each: Kept(live[each], restarted[each], compacted[each]) for each in SCENARIOS}


def compact_offsets(asked: Asked, topic: str) -> None:
    """Have the log of committed offsets compacted, up to what has been written until now."""
    asked.topic_ids.setdefault(OFFSETS, asked.topic_ids[topic])
    end = asked.offset(OFFSETS, LATEST).offset
    asked.configure(OFFSETS, segment_ms="200", min_cleanable_dirty_ratio="0.001", delete_retention_ms="0")
    group = new_group(asked)

    def dense() -> bool:
        commit(asked, group, topic, 1)
        commit(asked, group, topic, 2)
        keys = [each.key for each in asked.records(OFFSETS) if each.offset < end]
        return len(keys) == len(set(keys))

    eventually(dense)
    asked.configure(OFFSETS, segment_ms="604800000", min_cleanable_dirty_ratio="0.5", delete_retention_ms="86400000")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_offsets_live_and_replayed(kept: dict[Scenario, Kept], scenario: Scenario) -> None:
    expected = SCENARIOS[scenario]
    assert kept[scenario] == Kept(expected, expected, expected)


def test_offsets_right_after_their_transaction(asked: Asked) -> None:
    topic, group, producer = asked.topic_with(), new_group(asked), asked.init()
    for offset in range(1, 31):
        assert stage(asked, producer, group, topic, offset) == 0
        assert fetched(asked, group, topic, stable=True)[0] == UNSTABLE
        asked.end(producer, commit=True)
        assert fetched(asked, group, topic, stable=True) == (0, offset)


def test_a_topic_made_anew_has_no_offsets(asked: Asked) -> None:
    topic, group = asked.topic_with(), new_group(asked)
    assert commit(asked, group, topic, 5) == 0
    assert fetched(asked, group, topic, by_id=True) == (0, 5)
    asked.delete_topic(topic)
    asked.made_topic(topic)
    assert fetched(asked, group, topic, by_id=True) == (0, -1)
    assert fetched(asked, group, topic) == (0, -1)
    assert commit(asked, group, topic, 1) == 0
    assert fetched(asked, group, topic, by_id=True) == (0, 1)
