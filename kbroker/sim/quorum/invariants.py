"""The rules that every step of a simulated quorum must keep (KIP-595's safety, as Kafka's simulation states it).

Each is a class of its own; a violation is an ``AssertionError`` whose text begins with its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kbroker.raft_metadata.raft.quorum_state import QuorumRole
from kbroker.raft_metadata.raft.types import Ready
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.sim.quorum.node import Batch, SimRaftNode, batches_of, next_state
from kbroker.sim.world import Violation
from kbroker.types import OffsetAndEpoch


class ObservedQuorum(Protocol):
    """The quorum that invariants are about."""

    @property
    def nodes(self) -> Mapping[int, SimRaftNode]: ...
    @property
    def invariants(self) -> Sequence[Invariant]: ...
    @property
    def appended(self) -> Mapping[int, OffsetAndEpoch]:
        """The place in the log of each of the client's values."""
        ...

    def describe(self) -> str:
        """One line about every node."""
        ...


class Invariant:
    """Something that must always be so. ``suspended``: a scenario has done what permits a violation."""

    suspended = False

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        """``node`` has acted on ``ready``."""

    def on_applied(self, cluster: ObservedQuorum, node: SimRaftNode, batch: Batch) -> None:
        """``node`` takes a batch for committed."""

    def on_snapshot_loaded(self, cluster: ObservedQuorum, node: SimRaftNode) -> None:
        """``node`` goes on from a snapshot."""

    def at_end(self, cluster: ObservedQuorum) -> None:
        """All is healed, and all nodes run and agree."""

    def require(self, condition: bool, cluster: ObservedQuorum, text: str) -> None:
        """Hold, or say what is wrong."""
        if not condition and not self.suspended:
            raise Violation(f"{type(self).__name__}: {text}; {cluster.describe()}")


class OneLeaderPerEpoch(Invariant):
    """At most one node leads an epoch, and all who know its leader know the same."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        leader_id = node.core.leader_id
        if leader_id >= 0 and ready.role_changed:
            known = self._leaders.setdefault(node.core.epoch, leader_id)
            self.require(known == leader_id, cluster, f"epoch {node.core.epoch} has leaders {known} and {leader_id}")


class EpochMonotonic(Invariant):
    """A node never goes back to an epoch that it has left, not even by dying."""

    def __init__(self) -> None:
        self._epochs: dict[ReplicaKey, int] = {}

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        before = self._epochs.get(node.key, 0)
        epoch = node.core.epoch
        self.require(epoch >= before, cluster, f"node {node.id} went from epoch {before} to {epoch}")
        self._epochs[node.key] = node.core.epoch

    def forget(self, node: SimRaftNode) -> None:
        """The node's disk is gone."""
        self._epochs.pop(node.key, None)


class VoteOnce(Invariant):
    """A node votes for one candidate in an epoch, and follows the one leader of it."""

    def __init__(self) -> None:
        self._votes: dict[tuple[ReplicaKey, int], int] = {}

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        voted = node.core.voted
        if voted is not None:
            known = self._votes.setdefault((node.key, node.core.epoch), voted.id)
            self.require(
                known == voted.id, cluster, f"node {node.id} voted for {known} and {voted.id} in {node.core.epoch}"
            )

    def forget(self, node: SimRaftNode) -> None:
        """The node's disk is gone."""
        self._votes = {vote: voted for vote, voted in self._votes.items() if vote[0] != node.key}


class HighWatermarkMonotonic(Invariant):
    """The high watermark never goes back, neither on a node while it lives nor as ever newer leaders tell it."""

    def __init__(self) -> None:
        self._by_life: dict[tuple[ReplicaKey, int], int] = {}
        self._of_leader = (-1, -1)

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        core = node.core
        before = self._by_life.get((node.key, node.life), -1)
        self.require(core.high_watermark >= before, cluster, f"node {node.id}: {before} to {core.high_watermark}")
        self._by_life[node.key, node.life] = core.high_watermark
        if core.leader is not None and core.leader.high_watermark >= 0:
            epoch, highest = self._of_leader
            if core.epoch >= epoch:
                told = core.leader.high_watermark
                self.require(told >= highest, cluster, f"the leader of epoch {core.epoch} tells {told} after {highest}")
                self._of_leader = (core.epoch, max(told, highest))

    def forget(self, node: SimRaftNode) -> None:
        """The node's disk is gone."""
        self._by_life = {key: value for key, value in self._by_life.items() if key[0] != node.key}


class HighWatermarkOnMajority(Invariant):
    """All below a leader's high watermark is on the disks of a majority of its voters.

    A voter that was damaged since counts, as it does not vote: no leader is elected without it that lacks something.
    """

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        leader = node.core.leader
        if ready.high_watermark is None or leader is None:
            return
        high_watermark = leader.high_watermark
        last = _last_batch_below(node, high_watermark)
        having = [
            voter_id
            for voter_id in leader.voters
            if voter_id in cluster.nodes
            and (cluster.nodes[voter_id].disk.is_damaged or _has(cluster.nodes[voter_id], high_watermark, last))
        ]
        self.require(
            len(having) >= len(leader.voters) // 2 + 1,
            cluster,
            f"{high_watermark} is on {having} of {sorted(leader.voters)}",
        )


class CommittedDataEqual(Invariant):
    """All nodes agree on what is committed, in their logs and in their snapshots."""

    def __init__(self) -> None:
        self.committed: dict[int, Batch] = {}
        """By base offset."""
        self.committed_in: dict[int, int] = {}
        """By base offset: an epoch in which that was known, the first of all or a later one."""
        self._states: dict[int, bytes] = {0: b""}

    def on_applied(self, cluster: ObservedQuorum, node: SimRaftNode, batch: Batch) -> None:
        known = self.committed.setdefault(batch.base_offset, batch)
        self.committed_in.setdefault(batch.base_offset, node.core.epoch)
        self.require(known == batch, cluster, f"node {node.id} commits {batch}, another committed {known}")
        end = batch.last_offset + 1
        if end not in self._states and batch.base_offset in self._states:
            self._states[end] = next_state(self._states[batch.base_offset], batch)
        self.require(self._states.get(end) == node.state, cluster, f"node {node.id}: other state at offset {end}")

    def on_snapshot_loaded(self, cluster: ObservedQuorum, node: SimRaftNode) -> None:
        known = self._states.get(node.applied_offset)
        self.require(known == node.state, cluster, f"node {node.id}: other snapshot at {node.applied_offset}")


class LeaderHasCommitted(Invariant):
    """A node that begins to lead has everything that is committed.

    But for what is committed in a later epoch: who wins an election while its disk is slow may learn of it when
    others have elected again.
    """

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        if not ready.role_changed or node.core.role is not QuorumRole.LEADER:
            return
        known = next(i for i in cluster.invariants if isinstance(i, CommittedDataEqual))
        by_now = [base for base, epoch in known.committed_in.items() if epoch <= node.core.epoch]
        if not by_now:
            return
        last = known.committed[max(by_now)]
        if last.last_offset < node.log.start_offset:
            return
        self.require(node.log.end_offset > last.last_offset, cluster, f"leader {node.id} lacks {last}")
        own = batches_of(node.log.read_bytes(last.base_offset, 1)) if node.log.end_offset > last.last_offset else []
        self.require(bool(own) and own[0] == last, cluster, f"leader {node.id} has {own[:1]} instead of {last}")


class SnapshotAtLogStart(Invariant):
    """A log that does not start at 0 starts where a snapshot ends, and no snapshot is ahead of what is committed."""

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        log = node.log
        if log.start_offset == 0:
            return
        ids = node.disk.snapshots.ids()
        self.require(
            any(snapshot.offset == log.start_offset for snapshot in ids),
            cluster,
            f"node {node.id} starts at {log.start_offset} with snapshots {ids}",
        )


class AcknowledgedIsKept(Invariant):
    """Values that the client was told to be committed are in the log in the end, at their offsets.

    A value is acknowledged when the leader that took it has it below its high watermark while it leads that epoch.
    """

    def __init__(self) -> None:
        self._acknowledged: dict[int, tuple[int, int]] = {}

    def on_step(self, cluster: ObservedQuorum, node: SimRaftNode, ready: Ready) -> None:
        leader = node.core.leader
        if ready.high_watermark is None or leader is None:
            return
        for value, (offset, epoch) in cluster.appended.items():
            if epoch == leader.epoch and offset < leader.high_watermark:
                self._acknowledged[value] = (offset, epoch)

    def at_end(self, cluster: ObservedQuorum) -> None:
        committed = next(i for i in cluster.invariants if isinstance(i, CommittedDataEqual)).committed
        for value, (offset, epoch) in self._acknowledged.items():
            batch = committed.get(offset)
            self.require(
                batch is not None and batch.epoch == epoch,
                cluster,
                f"value {value} at {offset} of epoch {epoch} is {batch}",
            )


class RaftInvariants:
    """All of them."""

    @staticmethod
    def all() -> list[Invariant]:
        """A fresh set for one run."""
        return [
            OneLeaderPerEpoch(),
            EpochMonotonic(),
            VoteOnce(),
            HighWatermarkMonotonic(),
            HighWatermarkOnMajority(),
            CommittedDataEqual(),
            LeaderHasCommitted(),
            SnapshotAtLogStart(),
            AcknowledgedIsKept(),
        ]


def _last_batch_below(node: SimRaftNode, offset: int) -> Batch | None:
    if offset - 1 < node.log.start_offset:
        return None
    data = node.log.read_bytes(offset - 1, 1)
    return batches_of(data)[0] if data else None


def _has(node: SimRaftNode, offset: int, last: Batch | None) -> bool:
    """Whether all below ``offset`` is durable on a node, and the same: a log that has the last batch has all before."""
    store = node.disk.store
    if store.flushed_offset < offset:
        return False
    if last is None or last.last_offset < store.log_start_offset:
        return True
    data = store.read(last.base_offset, 1)
    return bool(data) and batches_of(data)[0] == last
