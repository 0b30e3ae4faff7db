"""The scenarios of simulated quorums. Each makes its cluster from a seed, and leaves it healed and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TextIO

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.messages import (
    AddVoter,
    AddVoterResult,
    RaftResponse,
    RemoveVoter,
    RemoveVoterResult,
    UpgradeKRaftVersion,
    UpgradeKRaftVersionResult,
)
from kbroker.sim.quorum.cluster import RaftCluster
from kbroker.sim.quorum.invariants import EpochMonotonic, HighWatermarkMonotonic, VoteOnce
from kbroker.sim.quorum.node import LISTENER, SimRaftNode, address_of

Scenario = Callable[[int, TextIO | None], RaftCluster]


def first_election(seed: int, out: TextIO | None) -> RaftCluster:
    """Nodes with empty disks start one after the other and elect a leader; records get to all, observers too."""
    cluster = RaftCluster(seed, voters=None, observers=seed % 2, dynamic=seed % 3 == 0, out=out)
    for node in cluster.nodes.values():
        node.start()
        cluster.run_for(cluster.rng.randrange(300))
    cluster.await_leader()
    cluster.start_client()
    cluster.await_progress(by=8)
    cluster.finish()
    return cluster


def leader_fails(seed: int, out: TextIO | None) -> RaftCluster:
    """The leader dies, or stops in good order; the others elect, and it comes back as a follower."""
    cluster = _running(seed, out)
    for _ in range(2):
        old = cluster.await_leader()
        epoch = old.core.epoch
        if cluster.rng.random() < 0.3:
            old.stop()
            cluster.run_for(cluster.rng.randrange(200))
        old.kill()
        rest = cluster.running
        new = cluster.await_leader(rest)
        assert new.core.epoch > epoch
        cluster.await_progress(nodes=rest)
        old.start()
        cluster.run_for(cluster.rng.randrange(2000))
    cluster.finish()
    return cluster


def all_killed(seed: int, out: TextIO | None) -> RaftCluster:
    """All nodes die at about the same time and come back in another order."""
    cluster = _running(seed, out)
    for _ in range(2):
        order = list(cluster.nodes.values())
        cluster.rng.shuffle(order)
        for node in order:
            node.kill()
            cluster.run_for(cluster.rng.choice((0, 0, 50)))
        cluster.rng.shuffle(order)
        for node in order:
            node.start()
            cluster.run_for(cluster.rng.choice((0, 100, 500)))
        cluster.await_leader()
        cluster.await_progress()
    cluster.finish()
    return cluster


def leader_partitioned(seed: int, out: TextIO | None) -> RaftCluster:
    """The leader is cut off from all others, in both directions or in one, and clients still reach it."""
    cluster = _running(seed, out)
    for _ in range(2):
        old = cluster.await_leader()
        rest = [node for node in cluster.nodes.values() if node is not old]
        ids = [node.id for node in rest]
        if cluster.rng.random() < 0.6:
            cluster.network.cut_both_ways([old.id], ids)
        elif cluster.rng.random() < 0.5:
            cluster.network.cut([old.id], ids)
        else:
            cluster.network.cut(ids, [old.id])
        cluster.await_leader(rest)
        cluster.await_progress(nodes=rest)
        cluster.network.heal()
        cluster.await_progress()
    cluster.finish()
    return cluster


def majority_reachable(seed: int, out: TextIO | None) -> RaftCluster:
    """A minority is cut off, killed or slow, and changes; the majority serves on, and keeps a leader it can see."""
    cluster = _running(seed, out)
    ids = list(cluster.nodes)
    for _ in range(2):
        minority = cluster.rng.sample(ids, (len(ids) - 1) // 2)
        majority = [node_id for node_id in ids if node_id not in minority]
        leader = cluster.leader()
        cluster.network.cut_both_ways(minority, majority)
        if cluster.rng.random() < 0.3:
            cluster.nodes[minority[0]].kill()
        live = [cluster.nodes[node_id] for node_id in majority]
        cluster.await_leader(live)
        cluster.await_progress(nodes=live)
        quiet = not cluster.network.faults.loss and not cluster.network.faults.delay
        if leader in live and quiet and cluster.disk_latency_ms < 10:
            # Pre-votes: a minority that comes back does not depose the leader that the majority follows.
            epoch = leader.core.epoch if leader is not None else -1
            cluster.network.heal()
            cluster.run_for(3000)
            now = cluster.leader()
            assert now is leader and now is not None and now.core.epoch == epoch, cluster.describe()
        cluster.network.heal()
        cluster.start_all()
        cluster.await_progress()
    cluster.finish()
    return cluster


def failures_back_to_back(seed: int, out: TextIO | None) -> RaftCluster:
    """One leader after the other dies as soon as it leads, while those before come back."""
    cluster = _running(seed, out)
    for _ in range(4):
        leader = cluster.await_leader()
        leader.kill()
        cluster.run_for(cluster.rng.randrange(3000))
        if cluster.rng.random() < 0.3:
            victim = cluster.rng.choice(list(cluster.nodes.values()))
            victim.kill()
        cluster.start_all()
    cluster.await_progress()
    cluster.finish()
    return cluster


def chaos(seed: int, out: TextIO | None) -> RaftCluster:
    """Nodes die and come back at once, links are cut and healed, snapshots written: in any order and at any time."""
    cluster = _running(seed, out, observers=seed % 3 // 2)
    rng, nodes = cluster.rng, list(cluster.nodes.values())

    def restart() -> None:
        node = rng.choice(nodes)
        node.kill()
        if rng.random() < 0.7:
            cluster.run_for(rng.randrange(10))
            node.start()

    def kill_leaders() -> None:
        for node in cluster.running:
            if node.core.is_leader:
                node.kill()

    def restart_voters() -> None:
        """Voters start anew that have just voted, while the election goes on."""
        for _ in range(100):
            voted = [node for node in cluster.running if node.core.voted and node.core.leader_id < 0]
            if voted:
                break
            cluster.run_for(2)
        for node in voted:
            node.kill()
            node.start()

    def isolate() -> None:
        ids = [node.id for node in nodes]
        some = rng.sample(ids, rng.randrange(1, len(ids)))
        rest = [node_id for node_id in ids if node_id not in some]
        (cluster.network.cut if rng.random() < 0.3 else cluster.network.cut_both_ways)(some, rest)

    def write_snapshots() -> None:
        for node in cluster.running:
            if rng.random() < 0.5:
                node.write_snapshot()

    actions = (restart, restart, restart_voters, restart_voters, kill_leaders, kill_leaders, isolate, write_snapshots)
    for _ in range(25):
        rng.choice(actions)()
        cluster.run_for(rng.choice((1, 5, 20, 100, 500, 1500)))
        if rng.random() < 0.4:
            cluster.network.heal()
        if rng.random() < 0.5:
            cluster.start_all()
    cluster.network.heal()
    cluster.start_all()
    cluster.await_progress()
    cluster.finish()
    return cluster


def committed_data_lost(seed: int, out: TextIO | None) -> RaftCluster:
    """A node loses its disk and comes back empty under its old name: the others bring it up to date again.

    With static voters nothing tells that it is not the node that voted and promised before, so Raft's guarantees hold
    only because the others are complete; the scenario kills nobody else until it has caught up.
    """
    cluster = _running(seed, out)
    cluster.await_progress()
    leader = cluster.await_leader()
    lost = cluster.rng.choice([node for node in cluster.nodes.values() if node is not leader])
    lost.kill()
    cluster.await_progress(nodes=cluster.running)
    _forget(cluster, lost)
    again = cluster.add_node(lost.id)
    cluster.run_for(cluster.rng.randrange(500))
    again.start()
    cluster.await_progress()
    cluster.finish()
    return cluster


def committed_data_lost_by_majority(seed: int, out: TextIO | None) -> RaftCluster:
    """A majority loses its disks: committed data is gone, and whoever still has it must notice, not follow blindly."""
    cluster = _running(seed, out)
    cluster.await_progress(by=10)
    cluster.stop_client()
    nodes = list(cluster.nodes.values())
    survivor = max(nodes, key=lambda node: node.core.high_watermark)
    high_watermark = survivor.core.high_watermark
    lost = [node for node in nodes if node is not survivor]
    cluster.network.cut_both_ways([survivor.id], [node.id for node in lost])
    for node in lost:
        node.kill()
        _forget(cluster, node)
        cluster.add_node(node.id).start()
    for invariant in cluster.invariants:
        invariant.suspended = True
    among = [cluster.nodes[node.id] for node in lost]
    cluster.await_leader(among)
    cluster.heal()
    cluster.run_for(10_000)
    assert survivor.core.high_watermark >= high_watermark, "the high watermark went back"
    followers = [node for node in among if node.core.high_watermark < high_watermark]
    assert survivor.log.end_offset >= high_watermark or not followers, "committed data was cut off without a word"
    return cluster


def voter_damaged(seed: int, out: TextIO | None) -> RaftCluster:
    """Voters lose parts of their logs, one at a time, while others die and come back: such a voter neither votes nor
    stands until it has all again, and nothing is lost. At most one of them lacks something at a time."""
    cluster = _running(seed, out)
    rng, nodes = cluster.rng, list(cluster.nodes.values())
    for _ in range(4):
        cluster.await_progress(by=rng.randrange(1, 8))
        victim = rng.choice(nodes)
        others = [node for node in nodes if node is not victim]
        victims = nodes if rng.random() < 0.3 else [victim, *others[: rng.randrange(2)]]
        for node in victims:
            node.kill()
        victim.damage()
        cluster.run_for(rng.choice((0, 100, 1500)))
        victim.start()
        cluster.run_for(rng.choice((0, 5, 50, 500)))
        if rng.random() < 0.4:
            victim.kill()  # in the middle of getting back what it lacks
            cluster.run_for(rng.randrange(500))
        if rng.random() < 0.5:
            rng.choice(others).kill()
        for node in nodes:
            if not node.running:
                cluster.run_for(rng.randrange(200))
                node.start()
        if rng.random() < 0.3:
            for node in cluster.running:
                node.write_snapshot()
        cluster.run_until(lambda node=victim: node.running and node.core.may_vote, f"n{victim.id} is whole")  # type: ignore[misc]
    cluster.finish()
    return cluster


def membership_change(seed: int, out: TextIO | None) -> RaftCluster:
    """Voters are added, removed (the leader too) and replaced, while nodes fail (KIP-853)."""
    cluster = RaftCluster(seed, voters=3, observers=2, dynamic=True, out=out)
    cluster.start_all()
    cluster.await_leader()
    cluster.start_client()
    cluster.await_progress()
    joining = [cluster.nodes[4], cluster.nodes[5]]
    for node in joining:
        _change(cluster, _add(cluster, node), lambda node=node: _votes(cluster, node, True))  # type: ignore[misc]
        if cluster.rng.random() < 0.3:
            cluster.await_leader().kill()
            cluster.await_leader()
            cluster.start_all()
    leaving = cluster.await_leader() if cluster.rng.random() < 0.5 else cluster.rng.choice(cluster.running)
    _change(
        cluster,
        lambda leader, done: leader.ask(RemoveVoter(leaving.key), done),
        lambda: _votes(cluster, leaving, False),
    )
    cluster.await_progress()
    if cluster.rng.random() < 0.5:
        # The removed node's disk is replaced, and it joins again under another directory id.
        leaving.kill()
        again = cluster.add_node(leaving.id, disk=2)
        again.start()
        cluster.await_progress()
        _change(cluster, _add(cluster, again), lambda: _votes(cluster, again, True))
    cluster.finish()
    return cluster


def kraft_version_upgrade(seed: int, out: TextIO | None) -> RaftCluster:
    """Fixed voters become voters that can change, while leaders die; then one joins and one leaves (KIP-853)."""
    cluster = RaftCluster(seed, voters=3, observers=1, unknown_disks=True, out=out)
    rng = cluster.rng
    cluster.start_all()
    cluster.await_leader()
    cluster.start_client()
    cluster.await_progress()

    def is_upgraded() -> bool:
        leader = cluster.leader()
        at = None if leader is None else leader.log.voters.last_offset
        return leader is not None and at is not None and at < leader.core.high_watermark

    for attempt in range(60):
        leader = cluster.await_leader()
        answers: list[RaftResponse] = []
        leader.ask(UpgradeKRaftVersion(leader.core.epoch, 1), answers.append)
        cluster.run_for(rng.randrange(10))
        taken = any(getattr(answer, "error", None) == ErrorCode.NONE for answer in answers)
        if attempt < 20 and rng.random() < (0.7 if taken else 0.05):
            leader.kill()  # perhaps with a level that nobody else has
        cluster.run_for(1 + rng.randrange(2000))
        if rng.random() < 0.5:
            rng.choice(cluster.running).write_snapshot()
        cluster.start_all()
        if attempt == 30:
            cluster.heal()  # voters cannot tell the leader of their disks on this network
        for answer in answers:
            assert isinstance(answer, UpgradeKRaftVersionResult)
            assert answer.error in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NOT_CONTROLLER), answer
        if is_upgraded():
            break
    assert is_upgraded(), f"kraft.version does not rise; {cluster.describe()}"
    leader = cluster.await_leader()
    expected = [(voter.key, voter.min_kraft_version, voter.max_kraft_version) for voter in leader.log.voters.last]
    assert expected == [(cluster.nodes[node_id].key, 0, 1) for node_id in cluster.bootstrap_ids], expected
    joining, leaving = cluster.nodes[4], rng.choice([cluster.nodes[node_id] for node_id in cluster.bootstrap_ids])
    _change(cluster, _add(cluster, joining), lambda: _votes(cluster, joining, True))
    _change(
        cluster,
        lambda leader, done: leader.ask(RemoveVoter(leaving.key), done),
        lambda: _votes(cluster, leaving, False),
    )
    cluster.finish()
    assert {node.log.kraft_version for node in cluster.running} == {1}
    return cluster


def snapshot(seed: int, out: TextIO | None) -> RaftCluster:
    """Nodes forget the beginning of the log; those that were away, or are new, go on from a snapshot."""
    cluster = _running(seed, out, observers=seed % 2)
    for _ in range(3):
        away = cluster.rng.choice(list(cluster.nodes.values()))
        away.kill()
        cluster.await_leader()
        cluster.await_progress(by=6)
        for node in cluster.running:
            if node.core.is_leader or cluster.rng.random() < 0.7:
                node.write_snapshot()
        if cluster.rng.random() < 0.3:
            cluster.await_leader().kill()
            cluster.run_for(cluster.rng.randrange(1000))
        cluster.start_all()
        cluster.run_for(cluster.rng.randrange(400))
        if cluster.rng.random() < 0.3:
            away.kill()  # perhaps in the middle of its snapshot
            away.start()
        cluster.await_leader()
        cluster.await_progress()
    cluster.finish()
    return cluster


SCENARIOS: Mapping[str, Scenario] = {
    "first-election": first_election,
    "leader-fails": leader_fails,
    "all-killed": all_killed,
    "leader-partitioned": leader_partitioned,
    "majority-reachable": majority_reachable,
    "failures-back-to-back": failures_back_to_back,
    "chaos": chaos,
    "committed-data-lost": committed_data_lost,
    "committed-data-lost-by-majority": committed_data_lost_by_majority,
    "voter-damaged": voter_damaged,
    "membership-change": membership_change,
    "kraft-version-upgrade": kraft_version_upgrade,
    "snapshot": snapshot,
}


def run_scenario(name: str, seed: int, out: TextIO | None = None) -> str:
    """Run one; the hash of its trace. ``AssertionError`` if something does not hold."""
    return SCENARIOS[name](seed, out).trace.digest


def _running(seed: int, out: TextIO | None, observers: int = 0) -> RaftCluster:
    cluster = RaftCluster(seed, observers=observers, dynamic=seed % 2 == 0, out=out)
    cluster.start_all()
    cluster.await_leader()
    cluster.start_client()
    cluster.await_progress()
    return cluster


def _forget(cluster: RaftCluster, node: SimRaftNode) -> None:
    """The node's disk is gone, and with it what it promised; invariants about it begin anew."""
    for invariant in cluster.invariants:
        if isinstance(invariant, EpochMonotonic | HighWatermarkMonotonic | VoteOnce):
            invariant.forget(node)


def _add(cluster: RaftCluster, node: SimRaftNode) -> Callable[[SimRaftNode, Callable[[RaftResponse], None]], None]:
    request = AddVoter(node.key, {LISTENER: address_of(node.id)}, 5000, cluster.rng.random() < 0.5)
    return lambda leader, done: leader.ask(request, done)


def _votes(cluster: RaftCluster, node: SimRaftNode, wanted: bool) -> bool:
    """Whether the leader's voter set has the node, or not, and that is committed."""
    leader = cluster.leader()
    if leader is None:
        return False
    voters = leader.log.voters
    committed = voters.last_offset is not None and voters.last_offset < leader.core.high_watermark
    return committed and voters.last.is_voter(node.key) is wanted


def _change(
    cluster: RaftCluster,
    ask: Callable[[SimRaftNode, Callable[[RaftResponse], None]], None],
    is_done: Callable[[], bool],
) -> None:
    """Ask the leader until the change is made, as the tool does."""
    for attempt in range(300):
        if is_done():
            cluster.start_client()
            return
        if attempt == 20:
            cluster.stop_client()  # the new voter cannot keep up on this network
        leader = cluster.await_leader()
        answers: list[RaftResponse] = []
        ask(leader, answers.append)
        cluster.run_for(1 + cluster.rng.randrange(1000))
        for answer in answers:
            assert isinstance(answer, AddVoterResult | RemoveVoterResult)
            assert answer.error in (
                ErrorCode.NONE,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.DUPLICATE_VOTER,
                ErrorCode.VOTER_NOT_FOUND,
            ), answer
    assert is_done(), f"the voter set does not change; {cluster.describe()}"
