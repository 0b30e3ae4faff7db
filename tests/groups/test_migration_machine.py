"""A group whose members come and go with either protocol, at random: it changes its own as they do.

While it is a consumer group no partition has two owners and a reload changes nothing; whatever it is in the end, those
who stay read every partition exactly once.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kbroker.errors import ErrorCode
from kbroker.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kbroker.wire.records.versioned import decode_versioned, encode_versioned
from tests.groups.consumer_harness import Consumer, ConsumerShard
from tests.groups.harness import GROUP, Member
from tests.groups.test_consumer_machine import check_owners, state
from tests.with_each import examples

PARTITIONS = 5
SESSION_MS = 45_000


class ClassicConsumer(Member):
    """A classic consumer that goes on with whatever is answered; ``poll`` is one step of it."""

    def __init__(self, shard: ConsumerShard) -> None:
        super().__init__(shard, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=30_000)
        self.owned: set[int] = set()
        self.is_stable = False

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {("t", partition) for partition in self.owned}

    def poll(self) -> None:
        if self._join is None:
            self.begin_join()
        elif self._sync is None and not self.is_stable:
            self.after_join()
        elif self._sync is not None:
            self.after_sync()
        else:
            error = self.heartbeat()
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                self.begin_join()
            elif error is not ErrorCode.NONE:
                self.lose_everything(error)

    def lose_everything(self, error: int = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        if error != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.owned, self.is_stable, self._join, self._sync = set(), False, None, None

    def begin_join(self) -> None:
        owned = [TopicPartition(topic="t", partitions=sorted(self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
        self.protocols = [("cooperative", encode_versioned(subscription, 1))]
        self.is_stable, self._sync = False, None
        self.join()

    def after_join(self) -> None:
        reply = self.joined
        if reply is None:
            return
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.begin_join()
        elif reply.error_code:
            self.lose_everything(reply.error_code)
        elif reply.leader == reply.member_id:
            self.sync(self.shares([member.member_id for member in reply.members]))
        else:
            self.sync()

    @staticmethod
    def shares(member_ids: list[str]) -> dict[str, bytes]:
        """As an eager leader gives them: every partition to somebody."""
        assignment = {}
        for index, member_id in enumerate(member_ids):
            partitions = [partition for partition in range(PARTITIONS) if partition % len(member_ids) == index]
            topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=partitions)
            assignment[member_id] = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic]), 1)
        return assignment

    def after_sync(self) -> None:
        reply = self.synced
        if reply is None:
            return
        self._sync = None
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.begin_join()
        elif reply.error_code:
            self.lose_everything(reply.error_code)
        else:
            decoded, _ = decode_versioned(ConsumerProtocolAssignment, reply.assignment)
            self.owned = {index for topic in decoded.assigned_partitions for index in topic.partitions}
            self.is_stable = True


AnyConsumer = Consumer | ClassicConsumer


def step(consumer: AnyConsumer) -> None:
    """Let a consumer send a heartbeat, or what stands for it in the classic protocol."""
    if isinstance(consumer, Consumer):
        consumer.heartbeat()
        if consumer.error is ErrorCode.GROUP_ID_NOT_FOUND:
            # Its session was over and the group is classic now. Clients give up here; this one is started again.
            consumer.epoch, consumer.owned = 0, {}
    else:
        consumer.poll()


class MigrationMachine(RuleBasedStateMachine):
    consumers = Bundle("consumers")

    def __init__(self) -> None:
        super().__init__()
        self.shard = ConsumerShard(topics={"t": PARTITIONS}, group_initial_rebalance_delay_ms=0)
        self.live: list[AnyConsumer] = []
        self.count = 0

    @rule(target=consumers, is_classic=st.booleans())
    def start(self, is_classic: bool) -> Any:
        if len(self.live) >= 4:
            return multiple()
        self.count += 1
        consumer = ClassicConsumer(self.shard) if is_classic else Consumer(self.shard, member_id=f"m{self.count}")
        self.live.append(consumer)
        step(consumer)
        return consumer

    @rule(consumer=consumers)
    def one_step(self, consumer: AnyConsumer) -> None:
        step(consumer)

    @rule(rounds=st.integers(1, 6))
    def everybody_goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for consumer in self.live:
                step(consumer)
            self.shard.advance(1_000)

    @rule(consumer=consumes(consumers))
    def leave(self, consumer: AnyConsumer) -> None:
        self.live.remove(consumer)
        if isinstance(consumer, Consumer) or consumer.is_stable:
            consumer.leave()

    @rule(consumer=consumes(consumers))
    def crash(self, consumer: AnyConsumer) -> None:
        self.live.remove(consumer)

    @rule(milliseconds=st.sampled_from([100, 1_000, 20_000, SESSION_MS]))
    def time_passes(self, milliseconds: int) -> None:
        self.shard.advance(milliseconds)

    @rule()
    def reload(self) -> None:
        fresh = self.shard.reloaded()
        assert state(fresh.core) == state(self.shard.core)
        assert GROUP not in fresh.core.groups.classic or GROUP not in fresh.core.groups.consumer
        for consumer in self.live:
            consumer.shard = fresh
            if isinstance(consumer, ClassicConsumer) and not consumer.is_stable:
                consumer.lose_everything()  # what it waited for died with the old coordinator
        self.shard = fresh

    @invariant()
    def one_owner(self) -> None:
        for group in self.shard.core.groups.consumer.values():
            check_owners(group)

    def teardown(self) -> None:
        quiet = 0
        for _ in range(250):
            before = [consumer.partitions for consumer in self.live]
            for consumer in self.live:
                step(consumer)
            self.shard.advance(3_000)
            quiet = quiet + 1 if before == [consumer.partitions for consumer in self.live] else 0
            if quiet > 2 * SESSION_MS // 3_000 + 5:
                break
        else:
            raise AssertionError("the group does not settle")
        read = sorted(partition for consumer in self.live for partition in consumer.partitions)
        assert read == ([("t", partition) for partition in range(PARTITIONS)] if self.live else [])


TestMigrationMachine = MigrationMachine.TestCase
TestMigrationMachine.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
