"""The leader's view of one partition: who replicates it, how far each is, and up to where it is committed.

Pure: no log, no clock. The caller gives log end offsets and the time and acts on what comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows of one follower."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ms: int = 0
    last_fetch_leader_log_end_offset: int = 0
    last_caught_up_ms: int = 0


class PartitionState:
    """Leadership, ISR and high watermark of one partition on one node.

    Invariant: ``high_watermark`` never goes back while this node leads, and is at most the log end offset of
    every member of ``maximal_isr``.
    """

    __slots__ = (
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "local_id",
        "maximal_isr",
        "partition_epoch",
        "progress",
        "replicas",
    )

    def __init__(self, local_id: int, high_watermark: int = 0) -> None:
        self.local_id = local_id
        self.leader = -1
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        #: The ISR plus proposed members: what the high watermark must count (KIP-497).
        self.maximal_isr: frozenset[int] = frozenset()
        self.high_watermark = high_watermark
        self.progress: dict[int, ReplicaProgress] = {}

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.leader == self.local_id

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Iterable[int],
        log_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Take what the metadata says of a partition that this node leads; whether the leader epoch is new."""
        new_epoch = leader_epoch > self.leader_epoch or not self.is_leader
        self._set_membership(self.local_id, leader_epoch, partition_epoch, replicas, isr)
        if new_epoch:
            self.leader_epoch_start_offset = log_end_offset
            self.progress = {}
        others = [replica for replica in replicas if replica != self.local_id]
        self.progress = {
            replica: self.progress.get(replica)
            or ReplicaProgress(last_caught_up_ms=now_ms if replica in self.isr else 0)
            for replica in others
        }
        return new_epoch

    def become_follower(
        self, *, leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Iterable[int]
    ) -> bool:
        """Take what the metadata says of a partition led elsewhere; whether the leader epoch is new."""
        new_epoch = leader_epoch > self.leader_epoch
        self._set_membership(leader, leader_epoch, partition_epoch, replicas, isr)
        self.progress = {}
        return new_epoch

    def _set_membership(
        self, leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Iterable[int]
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr

    def has_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether acks=all may be served. The bound is at most the number of replicas (KIP-966, 4.x)."""
        return len(self.isr) >= min(min_insync_replicas, len(self.replicas))

    def maybe_advance_high_watermark(self, log_end_offset: int) -> bool:
        """Move the high watermark to the least log end offset of the maximal ISR; whether it moved."""
        committed = log_end_offset
        if len(self.maximal_isr) > 1:
            for replica in self.maximal_isr:
                if replica != self.local_id:
                    committed = min(committed, self.progress[replica].log_end_offset)
        if committed > self.high_watermark:
            self.high_watermark = committed
            return True
        return False

    def update_follower(
        self, replica: int, *, fetch_offset: int, log_start_offset: int, leader_log_end_offset: int, now_ms: int
    ) -> None:
        """A follower has fetched from ``fetch_offset``, so it holds all below (``Replica.updateFetchStateOrThrow``)."""
        progress = self.progress[replica]
        if fetch_offset >= leader_log_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        elif fetch_offset >= progress.last_fetch_leader_log_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = log_start_offset
        progress.last_fetch_leader_log_end_offset = leader_log_end_offset
        progress.last_fetch_ms = now_ms

    def maybe_expand_isr(self, replica: int) -> frozenset[int] | None:
        """The ISR to propose to the controller once a follower has caught up, or ``None``."""
        progress = self.progress.get(replica)
        if progress is None or replica in self.maximal_isr:
            return None
        bound = max(self.high_watermark, self.leader_epoch_start_offset)
        return self.isr | {replica} if progress.log_end_offset >= bound else None

    def maybe_shrink_isr(self, *, log_end_offset: int, now_ms: int, max_lag_ms: int) -> frozenset[int] | None:
        """The ISR to propose without those that have not caught up within ``max_lag_ms``, or ``None``."""
        lagging = {
            replica
            for replica in self.isr
            if replica != self.local_id
            and self.progress[replica].log_end_offset != log_end_offset
            and now_ms - self.progress[replica].last_caught_up_ms > max_lag_ms
        }
        return self.isr - lagging if lagging else None
