"""The quorum as DescribeQuorum tells it."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.raft_metadata.leader_state import ReplicaProgress
from kbroker.raft_metadata.raft import RaftCore
from kbroker.raft_metadata.raft_messages import NO_LEADER
from kbroker.raft_metadata.voters import ReplicaKey, VoterSet


class ReplicaDescription(NamedTuple):
    """A replica of the metadata log as its leader sees it; the times are wall-clock milliseconds, -1 for never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """The quorum as DescribeQuorum tells it. Only the leader knows the replicas."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: VoterSet
    current_voters: list[ReplicaDescription]
    observers: list[ReplicaDescription]


NO_QUORUM = QuorumDescription(NO_LEADER, 0, -1, VoterSet(), [], [])
"""Before the log is open."""


def describe_quorum(core: RaftCore, now_ms: int, wall_clock_ms: int) -> QuorumDescription:
    """What the core knows at ``now_ms`` of its clock; the times in it as those of the wall clock."""
    view = core.describe(now_ms)

    def described(progress: ReplicaProgress) -> ReplicaDescription:
        if progress.key.id == core.local.id:
            return ReplicaDescription(progress.key, core.log.end_offset, wall_clock_ms, wall_clock_ms)
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
