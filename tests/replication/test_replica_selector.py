"""The replica that a consumer is sent to (KIP-392)."""

from __future__ import annotations

from kbroker.cores.replication.replica_selector import ReplicaView, select_by_rack

LEADER = ReplicaView(1, "a", 100)


def test_the_leader_serves_its_own_rack_and_those_without_a_replica() -> None:
    followers = [ReplicaView(2, "a", 100), ReplicaView(3, "b", 100)]
    assert select_by_rack(LEADER, followers, "a") == 1
    assert select_by_rack(LEADER, followers, "c") == 1
    assert select_by_rack(LEADER, followers, "") == 1
    assert select_by_rack(LEADER, [], "b") == 1


def test_of_several_the_one_that_has_most_and_lags_least() -> None:
    near = [ReplicaView(2, "b", 90), ReplicaView(3, "b", 95, behind_ms=10), ReplicaView(4, "b", 95, behind_ms=5)]
    assert select_by_rack(LEADER, near, "b") == 4
