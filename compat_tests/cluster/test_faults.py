"""Nodes die, freeze and leave under an idempotent producer: all that was acknowledged is read once, in order."""

from __future__ import annotations

import time

import pytest

from compat_tests.cluster.conftest import Begin
from kbroker.testing import RunningCluster
from tests.patience import LONG

LEADER_WITHIN = 90.0
"""Seconds after which there has to be another leader, on a machine ten times slower than most. A node that dies is
missed after nine; how soon another leads where nothing else runs is measured by ``benchmarks``."""


def test_leader_killed(cluster: RunningCluster, scene: Begin, rounds: int) -> None:
    with scene() as s:
        for _ in range(rounds):
            node = cluster.leader_of(s.topic, 0)
            node.kill()
            s.writer.await_every_partition(LEADER_WITHIN)
            node.start()
            cluster.await_in_sync()


def test_each_node_killed_one_after_the_other(cluster: RunningCluster, scene: Begin, rounds: int) -> None:
    with scene(group=True) as s:
        for _ in range(rounds):
            for node in cluster.nodes:
                node.kill()
                s.writer.await_every_partition(LEADER_WITHIN)
                node.start()
                cluster.await_in_sync()


def test_active_controller_killed(cluster: RunningCluster, scene: Begin, rounds: int) -> None:
    with scene(group=True, protocol="consumer") as s:
        for _ in range(rounds):
            node = cluster.controller
            node.kill()
            s.writer.await_every_partition(LEADER_WITHIN)
            assert cluster.controller is not node
            node.start()
            cluster.await_in_sync()


def test_controlled_shutdown_of_each(cluster: RunningCluster, scene: Begin, rounds: int) -> None:
    with scene(group=True) as s:
        for _ in range(rounds):
            for node in cluster.nodes:
                assert node.stop() == 0
                s.writer.await_every_partition(LEADER_WITHIN)
                node.start()
                cluster.await_in_sync()


@pytest.mark.parametrize("seconds", [5, pytest.param(20, id="20")])
def test_leader_paused(cluster: RunningCluster, scene: Begin, rounds: int, seconds: int) -> None:
    """The others go on without it once its session is over; when it wakes up it is fenced by its epoch."""
    with scene() as s:
        for _ in range(rounds):
            node = cluster.leader_of(s.topic, 0)
            node.pause()
            time.sleep(seconds)  # what the fault consists of
            node.resume()
            s.writer.await_every_partition(LEADER_WITHIN)
            cluster.await_in_sync()


def test_all_killed_at_once(cluster: RunningCluster, scene: Begin, rounds: int) -> None:
    with scene(group=True) as s:
        for _ in range(rounds):
            cluster.kill()
            cluster.start()
            s.writer.await_every_partition(LEADER_WITHIN)
            cluster.await_in_sync()


def test_two_of_three_killed_and_acknowledgements_wait(cluster: RunningCluster, scene: Begin) -> None:
    """One replica is fewer than ``min.insync.replicas``: nothing is acknowledged until another is back."""
    with scene() as s:
        leader = cluster.leader_of(s.topic, 0)
        first, second = [node for node in cluster.nodes if node is not leader][:2]
        first.kill()
        second.kill()
        # What was acknowledged before is told to the writer sooner or later, on a slow machine; then no more is.
        deadline, before = time.monotonic() + LONG, -1
        while s.writer.count != before:
            assert time.monotonic() < deadline, "acknowledgements go on"
            before = s.writer.count
            time.sleep(2)
        first.start()
        s.writer.await_every_partition(LEADER_WITHIN)
        second.start()
