"""KIP-848 groups, heartbeat by heartbeat (Kafka's GroupMetadataManager, its consumer half)."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from tests.groups.consumer_harness import Consumer, ConsumerShard, settle, topic_id


def test_first_member_gets_everything() -> None:
    shard = ConsumerShard()
    consumer = Consumer(shard, member_id="a")
    response = consumer.heartbeat()
    assert response is not None
    assert (response.member_epoch, response.heartbeat_interval_ms, response.member_id) == (2, 5_000, "a")
    assert consumer.partitions == {("t", partition) for partition in range(6)}
    assert shard.group.state.value == "Stable"


def test_partitions_move_only_when_given_up() -> None:
    shard = ConsumerShard()
    a, b = Consumer(shard, member_id="a"), Consumer(shard, member_id="b")
    a.heartbeat()
    shard.advance(1_000)
    b.heartbeat()
    assert (b.epoch, b.partitions) == (3, set())
    assert shard.group.state.value == "Reconciling"
    # Told to revoke, `a` stays in its epoch until it says that it has.
    response = a.heartbeat()
    assert response is not None and response.member_epoch == 2
    assert len(a.partitions) == 3
    b.heartbeat(full=False)
    assert b.partitions == set()
    assert a.heartbeat() is not None and a.epoch == 3
    b.heartbeat(full=False)
    assert len(b.partitions) == 3 and not a.partitions & b.partitions
    assert shard.group.state.value == "Stable"
    # Nothing new: no assignment in the answer, nothing in the log.
    written = len(shard.log)
    quiet = a.heartbeat(full=False)
    assert quiet is not None and quiet.assignment is None and len(shard.log) == written


def test_everybody_leaves() -> None:
    shard = ConsumerShard()
    consumers = [Consumer(shard, member_id=name) for name in "abc"]
    settle(shard, consumers)
    response = consumers[0].leave()
    assert response is not None and response.member_epoch == -1
    settle(shard, consumers[1:])
    assert sorted(len(consumer.partitions) for consumer in consumers[1:]) == [3, 3]
    for consumer in consumers[1:]:
        consumer.leave()
    assert shard.group.state.value == "Empty"
