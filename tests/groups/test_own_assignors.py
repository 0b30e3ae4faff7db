"""Groups whose assignors are not Kafka's own: they are asked as Kafka's are, and a group bears with their failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kbroker.config import GroupConfig
from kbroker.config.streams_group import StreamsGroupConfig
from kbroker.cores.groups.assignors.spec import Assignment, AssignmentKept, GroupSpec
from kbroker.cores.groups.modern_group import RETRY_ASSIGNMENT_MS
from kbroker.cores.groups.own_assignors import OwnAssignors
from kbroker.cores.groups.streams.assignors.spec import GroupSpec as StreamsSpec
from kbroker.cores.groups.streams.configured_topology import StreamsStatus
from kbroker.cores.groups.streams.tasks import TaskId, Tasks
from kbroker.types import Uuid
from tests.groups.consumer_harness import Consumer, ConsumerShard
from tests.groups.harness import GROUP
from tests.groups.share_harness import ShareMember, ShareShard, settle
from tests.groups.streams.test_protocol import App, group, statuses


class AllToOne:
    """Gives everything to the first member by id, unless it is to fail."""

    name = "all_to_one"

    def __init__(self) -> None:
        self.fails = False
        self.asked = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.fails:
            raise AssignmentKept


class Partitions(AllToOne):
    """Of partitions."""

    def assign(self, spec: GroupSpec, topics: Any) -> Mapping[str, Assignment]:
        self._ask()
        first = min(spec.members)
        everything = {
            topic_id: frozenset(range(topics.partition_count(topic_id)))
            for topic_id in spec.members[first].subscribed_topic_ids
        }
        return {member: everything if member == first else {} for member in spec.members}


class OfTasks(AllToOne):
    """Of tasks."""

    def assign(self, spec: StreamsSpec, subtopologies: Mapping[str, Any]) -> Mapping[str, Tasks]:
        self._ask()
        tasks = {TaskId(name, each) for name, one in subtopologies.items() for each in range(one.number_of_tasks)}
        return {min(spec.members): Tasks(frozenset(tasks))}


def consumers(assignor: Partitions) -> ConsumerShard:
    own = OwnAssignors(consumer={"all_to_one": assignor})
    return ConsumerShard(own_assignors=own, consumer_assignors=("all_to_one", "uniform"))


def test_consumers_get_what_the_default_assignor_says() -> None:
    shard = consumers(Partitions())
    a, b = (Consumer(shard, member_id=each) for each in "ab")
    for _ in range(3):
        for each in (a, b):
            each.send()
            shard.advance(1_000)
    assert {len(each) for each in shard.group.members["a"].assigned.values()} == {6}
    assert not shard.group.members["b"].assigned


def test_consumers_choose_among_the_assignors() -> None:
    assignor = Partitions()
    shard = consumers(assignor)
    a = Consumer(shard, member_id="a", assignor="uniform")
    a.send()
    assert assignor.asked == 0 and a.error == 0


def test_consumers_keep_what_they_have_when_the_assignor_fails() -> None:
    assignor = Partitions()
    shard = consumers(assignor)
    a, b = (Consumer(shard, member_id=each) for each in "ba")
    a.heartbeat()
    before = dict(shard.group.target)
    assignor.fails = True
    shard.advance(1_000)
    answer = b.send()
    asked = assignor.asked
    assert answer is not None and answer.error_code == 0, "a member comes in all the same"
    assert answer.heartbeat_interval_ms == 5_000, "and does not ask each second until it is mended"
    assert shard.group.target == before and shard.group.assignment_epoch < shard.group.group_epoch
    b.epoch = answer.member_epoch
    shard.advance(RETRY_ASSIGNMENT_MS - 1)
    assert a.send() is not None
    assert assignor.asked == asked, "not asked again so soon"
    assignor.fails = False
    shard.advance(1)
    a.send()
    assert assignor.asked == asked + 1 and shard.group.assignment_epoch == shard.group.group_epoch


def test_a_consumer_group_does_without_an_assignor_that_is_gone() -> None:
    shard = consumers(Partitions())
    Consumer(shard, member_id="a", assignor="all_to_one").send()
    fresh = shard.reloaded()
    fresh.settings = type(fresh.settings)()  # of a broker that has uniform and range
    fresh.advance(1_000)
    b = Consumer(fresh, member_id="b")
    b.send()
    assert b.error == 0 and set(fresh.group.target) == {"a", "b"}


class Shared(AllToOne):
    """Of partitions that have a state, in a share group."""

    def assign(
        self, spec: GroupSpec, assignable: Mapping[Uuid, frozenset[int]], topics: Any
    ) -> Mapping[str, Assignment]:
        self._ask()
        return {member: assignable if member == min(spec.members) else {} for member in spec.members}


def test_a_share_group_has_the_assignor_of_its_broker() -> None:
    assignor = Shared()
    shard = ShareShard(own_assignors=OwnAssignors(share=assignor), share_assignor="all_to_one")
    a, b = ShareMember(shard, "a"), ShareMember(shard, "b")
    settle(shard, [a, b])
    assert len(a.partitions) == 6 and b.partitions == set()
    assert shard.core.share_admin.describe(GROUP).assignor_name == "all_to_one"
    assignor.fails = True
    c = ShareMember(shard, "0")
    c.heartbeat()
    assert c.error == 0 and c.partitions == set() and c.interval_ms == 5_000 and len(a.partitions) == 6
    assignor.fails = False
    shard.advance(RETRY_ASSIGNMENT_MS)
    settle(shard, [a, b, c])
    assert len(c.partitions) == 6 and a.partitions == set()


def streams(of_tasks: OfTasks | None = None, **config: Any) -> ConsumerShard:
    own = OwnAssignors(streams={} if of_tasks is None else {"all_to_one": of_tasks})
    shard = ConsumerShard(topics={"in": 4, "log": 4}, own_assignors=own)
    settings = StreamsGroupConfig(**{"initial_rebalance_delay_ms": 0, "assignor": "all_to_one", **config})
    shard.group_config_value = GroupConfig(45_000, 5_000, 1_000, settings)
    return shard


def test_a_streams_group_has_the_assignor_that_it_names() -> None:
    shard = streams(OfTasks())
    a, b = App(shard, "a"), App(shard, "b")
    for app in (a, b, a, b):
        app.heartbeat()
        shard.advance(1_000)
    assert a.active == {"0": [0, 1, 2, 3]} and b.active == {}


def test_a_streams_group_keeps_its_tasks_when_the_assignor_fails() -> None:
    assignor = OfTasks()
    shard = streams(assignor)
    a, b = App(shard, "b"), App(shard, "a")
    a.heartbeat()
    shard.advance(1_000)
    assignor.fails = True
    answer = b.heartbeat()
    assert statuses(answer) == [StreamsStatus.ASSIGNMENT_DELAYED] and answer.heartbeat_interval_ms == 5_000
    assert "the assignor has failed" in (answer.status or [])[0].status_detail
    asked = assignor.asked
    assert statuses(a.heartbeat()) == [], "it goes on"
    assert a.active == {"0": [0, 1, 2, 3]}
    assert assignor.asked == asked
    assignor.fails = False
    shard.advance(RETRY_ASSIGNMENT_MS)
    for app in (b, a, a, b):
        app.heartbeat()
    assert b.active == {"0": [0, 1, 2, 3]} and a.active == {}


def test_an_assignor_that_fails_after_the_initial_delay_is_asked_again() -> None:
    assignor = OfTasks()
    assignor.fails = True
    shard = streams(assignor, initial_rebalance_delay_ms=3_000)
    a = App(shard, "a")
    a.heartbeat()
    shard.advance(3_000)
    assert assignor.asked == 1 and group(shard).assignment_epoch < group(shard).group_epoch
    assignor.fails = False
    a.heartbeat()
    assert assignor.asked == 1
    shard.advance(RETRY_ASSIGNMENT_MS)
    a.heartbeat()
    assert a.active == {"0": [0, 1, 2, 3]}


def test_a_streams_group_does_without_an_assignor_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    shard = streams(assignor="sticky", missing_assignor="all_to_one")
    a = App(shard, "a")
    a.heartbeat()
    assert a.active == {"0": [0, 1, 2, 3]}
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "group g: there is no assignor all_to_one, which the group names, and sticky assigns its tasks"
    ]
