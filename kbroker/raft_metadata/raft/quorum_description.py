"""The quorum as DescribeQuorum (KIP-595, KIP-836) describes it."""

from __future__ import annotations

from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.leader_state import QuorumReplicaProgress
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterSet
from kbroker.value_types import NamedTuple


class ReplicaDescription(NamedTuple):
    """A replica of the metadata log as its leader sees it; the times are wall-clock milliseconds, -1 for never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """The answer to DescribeQuorum. Only the leader knows the replicas."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: VoterSet
    current_voters: list[ReplicaDescription]
    observers: list[ReplicaDescription]


def describe_quorum(core: RaftCore, now_ms: int, wall_clock_ms: int) -> QuorumDescription:
    """The quorum as the core knows it at ``now_ms`` of its clock, with times of the wall clock."""
    view = core.describe(now_ms)

    def described(progress: QuorumReplicaProgress) -> ReplicaDescription:
        if progress.key.id == core.local.id:
            return ReplicaDescription(progress.key, view.log_end_offset, wall_clock_ms, wall_clock_ms)
        fetched, caught_up = (
            -1 if at < 0 else wall_clock_ms - (now_ms - at)
            for at in (progress.last_fetch_ms, progress.last_caught_up_ms)
        )
        return ReplicaDescription(progress.key, progress.end_offset, fetched, caught_up)

    return QuorumDescription(
        view.leader_id,
        view.epoch,
        view.high_watermark,
        core.voters,
        [described(progress) for progress in view.voters],
        [described(progress) for progress in view.observers],
    )
