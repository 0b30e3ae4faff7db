"""A KIP-848 group under random heartbeats, lost replies, crashes, restarts, topic changes and reloads.

Whatever happens: no partition has two owners, no client reads what is not its own, and a shard that is rebuilt from
its records equals the live one. And when it is over, everybody who stays gets a fair share of everything.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kbroker.cores.groups.consumer_group import ConsumerGroup
from kbroker.cores.groups.group_coordinator import GroupCoordinator
from tests.groups.consumer_harness import Consumer, ConsumerShard
from tests.with_each import examples

SESSION_MS = 45_000
NOT_STORED = {"metadata_refresh_ms", "metadata_refresh_epoch"}
SUBSCRIPTIONS: tuple[tuple[list[str], str], ...] = (
    (["t"], ""),
    (["t", "u"], ""),
    ([], ""),
    ([], "t|u"),
    ([], ".*"),
    (["u"], "t"),
    (["gone"], ""),
)


def state(core: GroupCoordinator) -> dict[str, dict[str, Any]]:
    """Everything that the records say of the consumer groups."""
    return {
        group_id: {
            field.name: getattr(group, field.name)
            for field in dataclasses.fields(group)
            if field.name not in NOT_STORED
        }
        for group_id, group in core.groups.consumer.items()
    }


def check_owners(group: ConsumerGroup) -> None:
    """Nobody has a partition that another one has; the map of owners says so too; epochs are in order."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                for partition in epochs:
                    assert (topic_id, partition) not in owners, f"{partition} has two owners"
                    owners[topic_id, partition] = member.member_id
        assert member.member_epoch <= group.assignment_epoch <= group.group_epoch
    known = {
        (topic_id, partition): owner
        for topic_id, by_partition in group._owners.items()
        for partition, owner in by_partition.items()
    }
    assert known == owners
    assert set(group.static_members.values()) <= set(group.members)


class GroupMachine(RuleBasedStateMachine):
    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.shard = ConsumerShard(topics={"t": 5, "u": 3})
        self.live: list[Consumer] = []
        self.count = 0

    def new_consumer(self, instance_id: str | None, subscription: tuple[list[str], str]) -> Consumer:
        self.count += 1
        topics, regex = subscription
        consumer = Consumer(
            self.shard,
            member_id=f"m{self.count}",
            topics=list(topics),
            regex=regex,
            instance_id=instance_id,
            rebalance_timeout_ms=20_000,
        )
        self.live.append(consumer)
        return consumer

    @initialize(target=consumers, subscription=st.sampled_from(SUBSCRIPTIONS))
    def begin(self, subscription: tuple[list[str], str]) -> Any:
        return multiple(self.new_consumer(None, (["t"], "")), self.new_consumer("one", subscription))

    @rule(
        target=consumers,
        subscription=st.sampled_from(SUBSCRIPTIONS),
        instance_id=st.sampled_from([None, None, "one", "two"]),
    )
    def start(self, subscription: tuple[list[str], str], instance_id: str | None) -> Any:
        if len(self.live) >= 6:
            return multiple()
        consumer = self.new_consumer(instance_id, subscription)
        consumer.heartbeat()
        return consumer

    @rule(consumer=consumers, full=st.booleans())
    def heartbeat(self, consumer: Consumer, full: bool) -> None:
        consumer.heartbeat(full=full or consumer.epoch == 0)

    @rule(consumer=consumers)
    def everybody_heartbeats(self, consumer: Consumer) -> None:
        for each in self.live:
            each.heartbeat()

    @rule(consumer=consumers)
    def reply_is_lost(self, consumer: Consumer) -> None:
        consumer.send()

    @rule(consumer=consumers, subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, consumer: Consumer, subscription: tuple[list[str], str]) -> None:
        consumer.topics, consumer.regex = list(subscription[0]), subscription[1]
        consumer.heartbeat()

    @rule(consumer=consumes(consumers), for_a_while=st.booleans())
    def leave(self, consumer: Consumer, for_a_while: bool) -> None:
        self.live.remove(consumer)
        consumer.leave(for_a_while=for_a_while and consumer.instance_id is not None)

    @rule(consumer=consumes(consumers))
    def crash(self, consumer: Consumer) -> None:
        self.live.remove(consumer)

    @rule(milliseconds=st.sampled_from([100, 1_000, 10_000, 19_000, SESSION_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.shard.advance(milliseconds)

    @rule(name=st.sampled_from("tu"), count=st.sampled_from([0, 1, 3, 5, 8]))
    def topic_changes(self, name: str, count: int) -> None:
        known = self.shard.topics.by_name(name)
        if known is None or count == 0 or count > known.partition_count:
            self.shard.set_topics(**{name: count})

    @rule()
    def reload(self) -> None:
        fresh = self.shard.reloaded()
        assert state(fresh.core) == state(self.shard.core)
        self.shard = fresh
        for consumer in self.live:
            consumer.shard = fresh

    @invariant()
    def one_owner(self) -> None:
        for group in self.shard.core.groups.consumer.values():
            check_owners(group)
            for consumer in self.live:
                member = group.members.get(consumer.member_id)
                if member is None or consumer.epoch == 0:
                    continue
                for owned_id, partitions in consumer.owned.items():
                    has = {*member.assigned.get(owned_id, ()), *member.pending_revocation.get(owned_id, ())}
                    assert partitions <= has, "a client reads what it has not"

    def teardown(self) -> None:
        # Two of one instance id shut each other out for ever, so only one of them stays.
        names: set[str] = set()
        for consumer in list(self.live):
            if consumer.instance_id is not None and consumer.instance_id in names:
                self.live.remove(consumer)
            names.add(consumer.instance_id or "")
        quiet = 0
        for _ in range(200):
            before = [(consumer.epoch, consumer.partitions) for consumer in self.live]
            for consumer in self.live:
                consumer.heartbeat()
            self.shard.advance(3_000)
            quiet = quiet + 1 if before == [(each.epoch, each.partitions) for each in self.live] else 0
            if quiet > SESSION_MS // 3_000 + 2:
                break
        else:
            raise AssertionError("the group does not settle")
        self.everything_is_read_once()
        fresh = self.shard.reloaded()
        assert state(fresh.core) == state(self.shard.core)

    def everything_is_read_once(self) -> None:
        wanted = set()
        for name in self.shard.topics.names():
            topic = self.shard.topics.by_name(name)
            assert topic is not None
            if any(name in (each.topics or ()) or matches(each.regex, name) for each in self.live):
                wanted |= {(name, partition) for partition in range(topic.partition_count)}
        read = [partition for consumer in self.live for partition in consumer.partitions]
        assert sorted(read) == sorted(wanted)


def matches(regex: str | None, name: str) -> bool:
    """Whether one of the few patterns of this test stands for a topic."""
    return bool(regex) and (regex == ".*" or name in str(regex).split("|"))


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
