"""A cluster of replicas of the metadata log in a simulation, and a client that appends to its leader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from kbroker.raft_metadata.raft.snapshot import encode_snapshot
from kbroker.raft_metadata.raft.types import RaftConfig, Ready
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.sim.quorum.datagrams import NetworkFaults, SimNetwork
from kbroker.sim.quorum.invariants import Invariant, RaftInvariants
from kbroker.sim.quorum.node import LISTENER, Batch, SimRaftNode, address_of
from kbroker.sim.world import EventQueue, Trace, Violation
from kbroker.types import OffsetAndEpoch, Uuid

BOOTSTRAP = OffsetAndEpoch(0, 0)

FILES_EVERY = 8
"""Every so many seeds the nodes write real files, which takes several times as long."""


class RaftCluster:
    """The nodes and their world. Everything in it follows from ``seed``."""

    def __init__(
        self,
        seed: int,
        *,
        voters: int | None = None,
        observers: int = 0,
        dynamic: bool = False,
        unknown_disks: bool = False,
        faults: NetworkFaults | None = None,
        out: TextIO | None = None,
    ) -> None:
        """``unknown_disks``: static voters are known by their addresses alone, as from ``controller.quorum.voters``."""
        self.rng = random.Random(seed)
        self.clock = EventQueue[int](0)
        """Milliseconds since the simulation began."""
        self.trace = Trace(self.clock, out, time_format="7d")
        self.network = SimNetwork(self.clock, self.rng, faults or NetworkFaults.random(self.rng))
        self.config = RaftConfig(
            election_timeout_ms=self.rng.choice((300, 1000)),
            fetch_timeout_ms=self.rng.choice((600, 2000)),
            fetch_max_wait_ms=self.rng.choice((100, 500)),
            fetch_snapshot_max_bytes=self.rng.choice((64, 1 << 20)),
            fetch_max_bytes=self.rng.choice((512, 1 << 20)),
        )
        self.dynamic = dynamic
        self.files = seed % FILES_EVERY == FILES_EVERY - 1
        """Whether the nodes have real files, on a disk that loses what a disk may lose."""
        self.disk_latency_ms = self.rng.choice((0, 2, 10))
        count = voters if voters is not None else self.rng.choice((3, 3, 5))
        self.bootstrap_ids = list(range(1, count + 1))
        self.initial_voters = VoterSet.of(
            VoterNode(self._key(node_id), {LISTENER: address_of(node_id)}) for node_id in self.bootstrap_ids
        )
        self._static_voters = self.initial_voters
        if unknown_disks:
            self._static_voters = VoterSet.of(
                VoterNode(ReplicaKey(voter.id), voter.endpoints, 0, 0) for voter in self.initial_voters
            )
        self.invariants: list[Invariant] = RaftInvariants.all()
        self.nodes: dict[int, SimRaftNode] = {}
        for node_id in range(1, count + observers + 1):
            self.add_node(node_id)
        self.appended: dict[int, OffsetAndEpoch] = {}
        """The place in the log of each of the client's values."""
        self._value = 0
        self._clients = 0

    def _key(self, node_id: int, disk: int = 1) -> ReplicaKey:
        return ReplicaKey(node_id, Uuid(bytes([node_id, disk]) + bytes(14)))

    def add_node(self, node_id: int, *, disk: int = 1) -> SimRaftNode:
        """A node with an empty disk, in place of one of that id. It does not run yet."""
        static = None if self.dynamic else self._static_voters
        node = SimRaftNode(
            self, self._key(node_id, disk), static, self.config, self.disk_latency_ms, self.rng, files=self.files
        )
        self.nodes[node_id] = node
        if self.dynamic and self.initial_voters.is_voter(node.key):
            # As ``kbroker format --initial-controllers`` leaves it.
            data = encode_snapshot(
                (), now_ms=0, last_contained_log_timestamp=0, kraft_version=1, voters=self.initial_voters
            )
            node.disk.snapshots.write(BOOTSTRAP, data)
        return node

    def node_at(self, address: VoterEndpoint) -> SimRaftNode:
        """The node that listens at an address."""
        return self.nodes[int(address.host.removeprefix("node"))]

    # What the nodes report

    def on_step(self, node: SimRaftNode, ready: Ready) -> None:
        """A node has done something: nothing may be wrong now."""
        core = node.core
        self.trace.note(
            f"n{node.id} {core.role.value} e{core.epoch} leader {core.leader_id} hw {core.high_watermark} "
            f"end {node.log.end_offset} sends {len(ready.send)} answers {len(ready.respond)}"
        )
        for invariant in self.invariants:
            invariant.on_step(self, node, ready)

    def on_applied(self, node: SimRaftNode, batch: Batch) -> None:
        """A node takes a batch for committed."""
        for invariant in self.invariants:
            invariant.on_applied(self, node, batch)

    def on_snapshot_loaded(self, node: SimRaftNode) -> None:
        """A node goes on from a snapshot."""
        for invariant in self.invariants:
            invariant.on_snapshot_loaded(self, node)

    # What a scenario does

    @property
    def running(self) -> list[SimRaftNode]:
        """The nodes that are up, in order."""
        return [node for node in self.nodes.values() if node.running]

    def start_all(self) -> None:
        """Start what does not run."""
        for node in self.nodes.values():
            if not node.running:
                node.start()

    def leader(self) -> SimRaftNode | None:
        """The running leader of the highest epoch that has one, if it is active."""
        leaders = [node for node in self.running if node.is_active]
        return max(leaders, key=lambda node: node.core.epoch, default=None)

    def run_for(self, duration_ms: int) -> None:
        """Let time pass."""
        until = self.clock.time + duration_ms
        while self.clock.run_next(until):
            pass

    def run_until(self, condition: Callable[[], bool], what: str, within_ms: int = 120_000) -> None:
        """Let time pass until something is so; :class:`Violation` if it takes too long."""
        until = self.clock.time + within_ms
        while not condition():
            if not self.clock.run_next(until):
                if condition():
                    return
                raise Violation(f"{what}: not within {within_ms} ms; {self.describe()}")

    def describe(self) -> str:
        """One line about every node."""
        return "; ".join(
            f"n{node.id} {node.core.role.value} e{node.core.epoch} leader {node.core.leader_id} "
            f"hw {node.core.high_watermark} log {node.log.start_offset}..{node.log.end_offset}"
            if node.running
            else f"n{node.id} down"
            for node in self.nodes.values()
        )

    def start_client(self, interval_ms: int = 60) -> None:
        """Append a value to whoever claims to lead, every so often, from now on."""
        self._clients += 1
        number = self._clients

        def again() -> None:
            if number != self._clients:
                return
            self.append_once()
            self.clock.call_at(self.clock.time + 1 + self.rng.randrange(2 * interval_ms), again)

        again()

    def stop_client(self) -> None:
        """No more values."""
        self._clients += 1

    def append_once(self) -> None:
        """A value for a node that claims to lead; several may."""
        claimants = [node for node in self.running if node.is_active]
        if claimants:
            self._value += 1
            value = self._value
            where = self.rng.choice(claimants).append(value)
            if where is not None:
                self.appended[value] = where

    def committed_offset(self) -> int:
        """The offset up to which any node knows data to be committed."""
        return max((node.core.high_watermark for node in self.running), default=-1)

    def await_leader(self, among: Sequence[SimRaftNode] | None = None, within_ms: int = 120_000) -> SimRaftNode:
        """Wait for an active leader."""

        def found() -> bool:
            leader = self.leader()
            return leader is not None and (among is None or leader in among)

        self.run_until(found, "a leader", within_ms)
        leader = self.leader()
        assert leader is not None
        return leader

    def await_progress(self, by: int = 5, nodes: Iterable[SimRaftNode] | None = None, within_ms: int = 120_000) -> None:
        """Wait until ``nodes`` (all running ones) have applied ``by`` offsets more than anyone has now."""
        target = self.committed_offset() + by
        waited = list(nodes) if nodes is not None else self.running
        self.run_until(
            lambda: all(node.running and node.applied_offset >= target for node in waited),
            f"offset {target} committed on {[node.id for node in waited]}",
            within_ms,
        )

    def heal(self) -> None:
        """A good network."""
        self.network.heal()
        self.network.faults = NetworkFaults()

    def finish(self) -> None:
        """After healing, everything that was promised is everywhere."""
        self.heal()
        self.start_all()
        self.stop_client()
        self.await_leader()
        self.append_once()
        self.run_until(
            lambda: (
                len({(n.applied_offset, n.state) for n in self.running}) == 1
                and all(n.applied_offset == n.log.end_offset for n in self.running)
            ),
            "all logs equal and committed",
            120_000,
        )
        for invariant in self.invariants:
            invariant.at_end(self)
