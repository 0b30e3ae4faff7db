"""Members that start together: how long it takes until each has its share, for any order in which they come.

A member that joins gets partitions only once the others have given them up, and learns of that in the response to its
next heartbeat. The tests compare members that follow the coordinator's interval with members that keep a fixed one:
Apache Kafka's coordinator always answers with the same interval.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from kbroker.config import GroupConfig
from kbroker.cores.groups.modern_group import UNSETTLED_INTERVAL_MS
from kbroker.types import Uuid
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatResponse, HeartbeatTopicPartitions
from tests.groups.consumer_harness import Consumer, ConsumerShard
from tests.with_each import with_each

REGULAR_MS = 5_000
MEMBERS = 10
PARTITIONS = 30


class Schedule:
    """The steps of all members, run in the order of time."""

    def __init__(self, shard: ConsumerShard) -> None:
        self.shard = shard
        self._steps: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def later(self, milliseconds: int, step: Callable[[], None]) -> None:
        heapq.heappush(self._steps, (self.shard.now_ms + milliseconds, next(self._numbers), step))

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> int:
        """Milliseconds until the condition holds."""
        start = self.shard.now_ms
        while not condition():
            at, _, step = heapq.heappop(self._steps)
            assert at - start <= limit_ms, f"not within {limit_ms} ms"
            self.shard.advance(at - self.shard.now_ms)
            step()
        return self.shard.now_ms - start


class TimedMember:
    """A member with the timing of a stock consumer: it says at once what it took and gave up, else at its interval."""

    def __init__(self, schedule: Schedule, name: str, *, callback_ms: int, obeys: bool) -> None:
        self.consumer = Consumer(schedule.shard, member_id=name)
        self.heartbeats = 0
        self._schedule = schedule
        self._callback_ms = callback_ms
        self._obeys = obeys
        self._turn = 0

    def join(self) -> None:
        self._take(self.consumer.send(full=True))

    def _regular(self, turn: int) -> None:
        if turn == self._turn:  # else it has sent one since that this one was to come after
            self._take(self.consumer.send(full=False))

    def _acknowledge(self, owned: dict[Uuid, set[int]]) -> None:
        self.consumer.owned = owned
        said = [HeartbeatTopicPartitions(topic_id=each, partitions=sorted(owned[each])) for each in sorted(owned)]
        self._take(self.consumer.send(full=False, topic_partitions=said))

    def _take(self, response: ConsumerGroupHeartbeatResponse | None) -> None:
        assert response is not None, self.consumer.message
        self.heartbeats += 1
        self._turn += 1
        self.consumer.epoch = response.member_epoch
        turn = self._turn
        interval_ms = response.heartbeat_interval_ms if self._obeys else REGULAR_MS
        if response.assignment is None:
            self._schedule.later(interval_ms, lambda: self._regular(turn))
        else:
            owned = {Uuid(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
            self._schedule.later(self._callback_ms, lambda: self._acknowledge(owned))


def cold_start(joins_ms: list[int], callbacks_ms: list[int], *, obeys: bool) -> tuple[int, int]:
    """Milliseconds from the last join until every member has its share and has said so, and the heartbeats sent."""
    shard = ConsumerShard(topics={"t": PARTITIONS})
    schedule = Schedule(shard)
    members = [
        TimedMember(schedule, f"m{number}", callback_ms=callback_ms, obeys=obeys)
        for number, callback_ms in enumerate(callbacks_ms)
    ]
    for member, at in zip(members, joins_ms, strict=True):
        schedule.later(at, member.join)

    def is_settled() -> bool:
        return all(len(member.consumer.partitions) == PARTITIONS // len(members) for member in members)

    took_ms = schedule.run_until(is_settled, 60_000) - max(joins_ms)
    return took_ms, sum(member.heartbeats for member in members)


def random_start(seed: int, spreads_ms: list[int]) -> tuple[list[int], list[int]]:
    rng = random.Random(seed)
    spread_ms = rng.choice(spreads_ms)
    joins_ms = [rng.randint(0, spread_ms) for _ in range(MEMBERS)]
    slowest_ms = rng.choice([0, 2, 20, 120])
    return joins_ms, [rng.randint(0, slowest_ms) for _ in range(MEMBERS)]


@with_each(range(60))
def test_members_that_start_together_have_their_shares_soon(seed: int) -> None:
    joins_ms, callbacks_ms = random_start(seed, [0, 5, 50, 300, 900])
    regular_ms, _ = cold_start(joins_ms, callbacks_ms, obeys=False)
    took_ms, heartbeats = cold_start(joins_ms, callbacks_ms, obeys=True)
    assert took_ms <= regular_ms
    # A second until the next target may be made, one until what was given up is taken, and the callbacks.
    assert took_ms <= 2 * UNSETTLED_INTERVAL_MS + 4 * max(callbacks_ms)
    assert heartbeats <= 6 * MEMBERS


@with_each(range(60))
def test_members_that_start_one_after_the_other_wait_no_longer_than_at_the_regular_interval(seed: int) -> None:
    joins_ms, callbacks_ms = random_start(seed, [1_500, 4_000, 12_000])
    regular_ms, _ = cold_start(joins_ms, callbacks_ms, obeys=False)
    took_ms, heartbeats = cold_start(joins_ms, callbacks_ms, obeys=True)
    assert took_ms <= regular_ms + 4 * max(callbacks_ms)
    assert heartbeats <= 15 * MEMBERS


def test_at_the_regular_interval_who_asks_before_the_owner_gives_up_waits_for_one_more() -> None:
    # The owner's callback takes longer than it takes the others to come.
    joins_ms = list(range(MEMBERS))
    callbacks_ms = [100] + [0] * (MEMBERS - 1)
    regular_ms, _ = cold_start(joins_ms, callbacks_ms, obeys=False)
    assert regular_ms >= 2 * REGULAR_MS - 100


def test_whoever_waits_for_a_slow_owner_comes_back_to_the_regular_interval() -> None:
    shard = ConsumerShard(topics={"t": 2})
    slow, waiting = Consumer(shard, member_id="slow"), Consumer(shard, member_id="waiting")
    assert interval_ms(slow.heartbeat()) == REGULAR_MS
    assert interval_ms(slow.heartbeat(full=False)) == UNSETTLED_INTERVAL_MS  # another may join meanwhile
    shard.advance(UNSETTLED_INTERVAL_MS)
    assert interval_ms(slow.heartbeat(full=False)) == REGULAR_MS
    assert interval_ms(waiting.heartbeat()) == UNSETTLED_INTERVAL_MS
    shard.advance(2 * REGULAR_MS - 1)
    assert interval_ms(waiting.heartbeat(full=False)) == UNSETTLED_INTERVAL_MS
    shard.advance(1)
    assert interval_ms(waiting.heartbeat(full=False)) == REGULAR_MS


def test_who_waits_for_the_next_target_comes_when_it_may_be_made() -> None:
    shard = ConsumerShard(topics={"t": 2})
    shard.group_config_value = GroupConfig(45_000, REGULAR_MS, 3_000)
    first, second = Consumer(shard, member_id="first"), Consumer(shard, member_id="second")
    first.heartbeat()
    shard.advance(500)
    assert interval_ms(second.heartbeat()) == 2_500
    shard.advance(2_400)
    assert interval_ms(second.heartbeat()) == UNSETTLED_INTERVAL_MS


def test_an_interval_below_the_short_one_is_kept() -> None:
    shard = ConsumerShard(topics={"t": 2})
    shard.group_config_value = GroupConfig(45_000, 200, 1_000)
    first, second = Consumer(shard, member_id="first"), Consumer(shard, member_id="second")
    assert interval_ms(first.heartbeat()) == 200
    assert interval_ms(second.heartbeat()) == 200
    assert interval_ms(first.heartbeat(full=False)) == 200


def test_who_subscribes_by_a_regular_expression_asks_soon_what_it_stands_for() -> None:
    shard = ConsumerShard(topics={"t": 2})
    member = Consumer(shard, member_id="m", regex="t.*")
    assert interval_ms(member.heartbeat()) == UNSETTLED_INTERVAL_MS
    assert member.partitions == set()
    member.heartbeat(full=False)
    assert len(member.partitions) == 2


def interval_ms(response: ConsumerGroupHeartbeatResponse | None) -> int:
    assert response is not None
    return response.heartbeat_interval_ms
