"""The leader's view of one partition: its replicas, the progress of each, and the high watermark.

Pure: no log, no clock. The caller gives log end offsets and the time and acts on what comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from kbroker.value_types import dataclass

_NOBODY: frozenset[int] = frozenset()
_NO_PROGRESS: Mapping[int, ReplicaProgress] = MappingProxyType({})
"""Of all partitions without followers."""


@lru_cache(4096)
def _shared(members: frozenset[int]) -> frozenset[int]:
    """Returns the same object for the same members: most partitions of a node have those of others."""
    return members


@dataclass(slots=True)
class ReplicaProgress:
    """One follower's progress as the leader knows it from its fetches."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_fetch_ms: int = 0
    last_fetch_leader_log_end_offset: int = 0
    last_caught_up_ms: int = 0
    broker_epoch: int = -1
    """The broker epoch in its last fetch; -1 if the fetch had none."""

    def is_caught_up(self, log_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has the leader's whole log, or had it within ``max_lag_ms``."""
        return self.log_end_offset == log_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


class PartitionState:
    """Leadership, ISR and high watermark of one partition on one node.

    Invariant: ``high_watermark`` never goes back while this node leads, and is at most the log end offset of
    every member of ``maximal_isr``.

    A change of the ISR is proposed (``propose_isr``) and takes effect once the controller has committed it. Until then
    the high watermark counts the members of both ISRs, since the controller may choose either (KIP-497).
    """

    __slots__ = (
        "_counted",
        "_joining",
        "_log_end_offset",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "local_id",
        "maximal_isr",
        "min_insync_replicas",
        "partition_epoch",
        "progress",
        "proposed_isr",
        "replicas",
        "under_min_isr",
    )

    def __init__(self, local_id: int, high_watermark: int = 0) -> None:
        self.local_id = local_id
        self.leader = -1
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr = self.maximal_isr = _NOBODY
        """The ISR plus proposed members: the high watermark counts them all (KIP-497)."""
        self.proposed_isr: frozenset[int] | None = None
        """The ISR in a request that the controller has not answered yet."""
        self.min_insync_replicas = 1
        self.under_min_isr = False
        self.high_watermark = high_watermark
        self.progress: Mapping[int, ReplicaProgress] = _NO_PROGRESS
        self._joining = _NOBODY
        """Followers outside of the maximal ISR that are about to join it."""
        self._counted: tuple[ReplicaProgress, ...] = ()
        """The progress of the followers that the high watermark waits for: the maximal ISR and ``_joining``."""
        self._log_end_offset = 0
        """This leader's log end offset after its last append."""

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
        """Apply the metadata of a partition that this node leads; whether the leader epoch is new.

        Metadata that is not newer than the known partition epoch changes nothing: it is older than the answer to a
        proposal, or another partition of the topic has changed. A proposal under way counts until it is answered.
        """
        new_epoch = leader_epoch > self.leader_epoch or not self.is_leader
        if not new_epoch and partition_epoch <= self.partition_epoch:
            return False
        if new_epoch:
            self.leader_epoch_start_offset = self._log_end_offset = log_end_offset
            self.progress = _NO_PROGRESS
        members = _shared(frozenset(isr))
        progress = {
            replica: self.progress.get(replica)
            or ReplicaProgress(last_caught_up_ms=now_ms if replica in members else 0)
            for replica in replicas
            if replica != self.local_id
        }
        self.progress = progress or _NO_PROGRESS
        self._set_membership(self.local_id, leader_epoch, partition_epoch, replicas, members)
        return new_epoch

    def become_follower(
        self, *, leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Iterable[int]
    ) -> bool:
        """Apply the metadata of a partition that another node leads; whether the leader epoch is new."""
        new_epoch = leader_epoch > self.leader_epoch
        self.progress = _NO_PROGRESS
        self._set_membership(leader, leader_epoch, partition_epoch, replicas, _shared(frozenset(isr)))
        return new_epoch

    def _set_membership(
        self, leader: int, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: frozenset[int]
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.isr = isr
        self.proposed_isr = None
        self._joining = _NOBODY
        self._members_changed()

    def _members_changed(self) -> None:
        self.maximal_isr = self.isr | self.proposed_isr if self.proposed_isr is not None else self.isr
        if self._joining:
            self._joining -= self.maximal_isr
        self.under_min_isr = not self.has_min_isr(self.min_insync_replicas)
        self._counted = tuple(
            progress
            for replica, progress in self.progress.items()
            if replica in self.maximal_isr or replica in self._joining
        )

    def set_min_insync_replicas(self, value: int) -> None:
        """Set ``min.insync.replicas`` of the topic."""
        self.min_insync_replicas = value
        self.under_min_isr = not self.has_min_isr(value)

    def has_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether acks=all may be served. The bound is at most the number of replicas (KIP-966, 4.x)."""
        return len(self.isr) >= min(min_insync_replicas, len(self.replicas))

    # --- changes of the ISR -----------------------------------------------------------------------------------

    def propose_isr(self, isr: frozenset[int]) -> None:
        """Note that the controller has been asked for this ISR."""
        self.proposed_isr = isr
        self._members_changed()

    def withdraw_proposal(self) -> None:
        """Drop the proposal, which the controller has refused for good: the ISR stays as it was."""
        self.proposed_isr = None
        self._members_changed()

    def commit_isr(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Apply an ISR that the controller has committed in this leader epoch; whether its partition epoch is new."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr = _shared(frozenset(isr))
        self.proposed_isr = None
        self._members_changed()
        return True

    def set_joining(self, replica: int, joining: bool) -> None:
        """Set whether the high watermark waits for a follower outside of the ISR, which is about to join it.

        Otherwise it might never catch up with a leader that commits by itself (``shouldWaitForReplicaToJoinIsr``).
        """
        if joining == (replica in self._joining) or replica in self.maximal_isr:
            return
        self._joining = self._joining | {replica} if joining else self._joining - {replica}
        self._members_changed()

    # --- progress ---------------------------------------------------------------------------------------------

    def maybe_advance_high_watermark(self, log_end_offset: int) -> bool:
        """Move the high watermark to the least log end offset of the maximal ISR; whether it moved.

        It stays where it is while the ISR is smaller than ``min.insync.replicas`` (KIP-966).
        """
        if self.under_min_isr:
            return False
        committed = log_end_offset
        for progress in self._counted:
            if progress.log_end_offset < committed:
                committed = progress.log_end_offset
        if committed > self.high_watermark:
            self.high_watermark = committed
            return True
        return False

    def update_follower(
        self,
        replica: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_log_end_offset: int,
        now_ms: int,
        broker_epoch: int = -1,
    ) -> None:
        """Note a follower's fetch from ``fetch_offset``: it holds all below (``Replica.updateFetchStateOrThrow``)."""
        progress = self.progress[replica]
        if fetch_offset < progress.log_end_offset:
            progress.last_caught_up_ms = 0  # it has lost what it had, by damage
        if fetch_offset >= leader_log_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        elif fetch_offset >= progress.last_fetch_leader_log_end_offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = log_start_offset
        progress.last_fetch_leader_log_end_offset = leader_log_end_offset
        progress.last_fetch_ms = now_ms
        progress.broker_epoch = broker_epoch

    def leader_appended(self, log_end_offset: int, now_ms: int) -> None:
        """Note that the leader's log has grown to ``log_end_offset``.

        Followers that had the whole log count as caught up until now: their last fetch may be long ago if nobody
        wrote.
        """
        for progress in self.progress.values():
            if progress.log_end_offset == self._log_end_offset:
                progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        self._log_end_offset = log_end_offset

    def maybe_expand_isr(self, replica: int) -> frozenset[int] | None:
        """The ISR to propose to the controller once a follower has caught up, or ``None``."""
        progress = self.progress.get(replica)
        if progress is None or replica in self.maximal_isr or self.proposed_isr is not None:
            return None
        bound = max(self.high_watermark, self.leader_epoch_start_offset)
        return self.isr | {replica} if progress.log_end_offset >= bound else None

    def maybe_shrink_isr(self, *, log_end_offset: int, now_ms: int, max_lag_ms: int) -> frozenset[int] | None:
        """The ISR to propose without those that have not caught up within ``max_lag_ms``, or ``None``."""
        if self.proposed_isr is not None:
            return None
        lagging = {
            replica
            for replica in self.isr
            if replica in self.progress and not self.progress[replica].is_caught_up(log_end_offset, now_ms, max_lag_ms)
        }
        return self.isr - lagging if lagging else None
