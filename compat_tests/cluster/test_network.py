"""The network between three processes fails in nine ways; clients reach every node all the while.

What is acknowledged stays, and soon after the network's recovery everything is written to again. While
a majority of the nodes can talk, so it is before that. Then all faults together, of processes too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests.cluster.conftest import Begin
from compat_tests.cluster.test_transactions import Copying
from compat_tests.cluster.wires import WiredCluster
from kbroker.testing import ClusterNode
from tests.patience import LONG

FAULT_SECONDS = 13.0
"""Seconds that a fault lasts (20 with ``--faults``): longer than a broker's session, so that the controller fences
a broker that it does not hear."""


@pytest.fixture(scope="module")
def three_nodes(request: pytest.FixtureRequest) -> Iterator[WiredCluster]:
    """Three nodes with a network that can be cut."""
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("these tests cut the network between nodes of kbroker that they start themselves")
    with WiredCluster(3, {"log.segment.bytes": 1 << 20}) as cluster:
        assert isinstance(cluster, WiredCluster)
        yield cluster


def _others(cluster: WiredCluster, node: ClusterNode) -> list[int]:
    return [each.id for each in cluster.nodes if each is not node]


def _all(cluster: WiredCluster) -> list[int]:
    return [each.id for each in cluster.nodes]


def cut_off_both_ways(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """A node that does not lead the partition: neither it nor the others hear of one another."""
    node = next(each for each in cluster.nodes if each not in (leader, cluster.controller))
    cluster.wires.cut_both_ways([node.id], _others(cluster, node))
    time.sleep(seconds)


def leader_cut_off(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    cluster.wires.cut_both_ways([leader.id], _others(cluster, leader))
    time.sleep(seconds)


def leader_is_not_heard(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    cluster.wires.cut([leader.id], _others(cluster, leader))
    time.sleep(seconds)


def leader_hears_nothing(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    cluster.wires.cut(_others(cluster, leader), [leader.id])
    time.sleep(seconds)


def controller_cut_off(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    controller = cluster.controller
    cluster.wires.cut_both_ways([controller.id], _others(cluster, controller))
    time.sleep(seconds)


def one_between_two(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """Two nodes do not hear one another, and both hear the third."""
    first, second = leader.id, _others(cluster, leader)[0]
    cluster.wires.cut_both_ways([first], [second])
    time.sleep(seconds)


def flapping(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """The leader is cut off for a second and back for a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        cluster.wires.cut_both_ways([leader.id], _others(cluster, leader))
        time.sleep(1)
        cluster.wires.heal()
        time.sleep(1)


def far_and_narrow(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """100 ms and 3 Mbit/s."""
    cluster.wires.slow(_all(cluster), 0.1, 3e6 / 8)
    time.sleep(seconds)


def lossy(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """The network loses one packet of a hundred."""
    cluster.wires.slow(_all(cluster), 0.001, loss=0.01)
    time.sleep(seconds)


def half_open(cluster: WiredCluster, leader: ClusterNode, seconds: float) -> None:
    """Connections are gone at one end, and the other does not know: first those to the leader, then to all."""
    assert cluster.wires.forget(leader.id)
    time.sleep(seconds / 2)
    assert sum(cluster.wires.forget(node.id) for node in cluster.nodes)
    time.sleep(seconds / 2)


Fault = Callable[[WiredCluster, ClusterNode, float], None]

STOPS_NOBODY: list[Fault] = [cut_off_both_ways, leader_cut_off, leader_is_not_heard, controller_cut_off]
STOPS_NOBODY += [far_and_narrow, lossy]
"""With these the others elect, or are slow, so that there are acknowledgements before the network has recovered."""
FAULTS: list[Fault] = [*STOPS_NOBODY, leader_hears_nothing, one_between_two, flapping, half_open]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", "-"))
def test_network(cluster: WiredCluster, scene: Begin, rounds: int, fault: Fault) -> None:
    with scene(group=True, per_second=500) as s:
        for _ in range(rounds):
            leader = cluster.leader_of(s.topic, 0)
            assert isinstance(leader, ClusterNode)
            fault(cluster, leader, FAULT_SECONDS if rounds == 1 else 20.0)
            during = s.writer.count
            if fault in STOPS_NOBODY:
                s.writer.await_every_partition(LONG)
            cluster.wires.heal()
            s.writer.await_every_partition(LONG)
            cluster.await_in_sync()
            print(f"{fault.__name__}: {during} acknowledged when it ended, {cluster.wires.held} times held back")


MIXED_SECONDS = 30.0
"""A minute with ``--faults``."""


def _mix(cluster: WiredCluster, rng: random.Random, seconds: float) -> list[str]:
    """Make faults for some seconds, a new one perhaps before the last is over, and return a line for each."""
    told = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        node = rng.choice(cluster.nodes)
        others = [each.id for each in cluster.nodes if each is not node]
        what = rng.choice(("kill", "kill", "stop", "pause", "cut off", "not heard", "deaf", "half-open", "far"))
        if what == "kill":
            node.kill()
        elif what == "stop":
            if node.is_running:
                node.resume()
                node.stop()
        elif what == "pause":
            node.pause()
        elif what == "cut off":
            cluster.wires.cut_both_ways([node.id], others)
        elif what == "not heard":
            cluster.wires.cut([node.id], others)
        elif what == "deaf":
            cluster.wires.cut(others, [node.id])
        elif what == "half-open":
            cluster.wires.forget(node.id)
        else:
            cluster.wires.slow([each.id for each in cluster.nodes], rng.uniform(0.01, 0.2), 3e6 / 8)
        told.append(f"node {node.id} {what}")
        time.sleep(rng.choice((0.5, 2, 5, 12)))
        if rng.random() < 0.7:
            _repair(cluster)
            time.sleep(rng.choice((0, 1, 5)))
    _repair(cluster)
    return told


def _repair(cluster: WiredCluster) -> None:
    cluster.wires.heal()
    for node in cluster.nodes:
        node.resume()
    cluster.start()


@pytest.mark.parametrize("course", range(3))
def test_all_mixed(cluster: WiredCluster, scene: Begin, rounds: int, course: int) -> None:
    if rounds == 1 and course:
        pytest.skip("one course of three; all with --faults 2 or more")
    for number in range(rounds):
        rng = random.Random(f"{course} {number}")
        with scene(group=True, protocol=rng.choice(("classic", "consumer")), per_second=500) as s:
            print(", ".join(_mix(cluster, rng, MIXED_SECONDS if rounds == 1 else 60.0)))
            s.writer.await_every_partition(LONG)


def test_a_copy_is_exact_while_all_is_mixed(cluster: WiredCluster, rounds: int, pytestconfig: pytest.Config) -> None:
    messages = pytestconfig.getoption("--messages") or 1_000
    for number in range(rounds):
        copying = Copying(cluster.bootstrap_servers, messages, messages // 200)
        try:
            copying.write_the_rest()
            print(", ".join(_mix(cluster, random.Random(f"copy {number}"), MIXED_SECONDS if rounds == 1 else 60.0)))
            deadline = time.monotonic() + LONG + messages / 100
            while (copied := copying.copied) < messages:
                assert time.monotonic() < deadline, (copied, copying.copier.failures)
                time.sleep(0.1)
            copying.copier.end()
            copying.judge()
            print(f"{copying.copier.lives} copiers, failures: {copying.copier.failures}")
        finally:
            copying.close()
