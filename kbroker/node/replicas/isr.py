"""Proposes which followers join or leave the ISR of the partitions that this node leads (KIP-497).

A follower that has caught up is proposed to join, one that lags for longer than ``replica.lag.time.max.ms`` to leave.
``node.replicas.alter_partition_manager`` asks the controller, which decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import trio

from kbroker.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kbroker.cores.replication.partition_state import PartitionState
    from kbroker.log.partition_log import PartitionLog
    from kbroker.raft_metadata.image import MetadataImage
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


class LocalPartition(Protocol):
    """A partition of which this node has a replica (``node.replicas.partition.Partition``)."""

    topic_partition: TopicPartition
    topic_id: Uuid
    state: PartitionState
    offline: bool

    @property
    def has_log(self) -> bool:
        """Whether the log exists already."""
        ...

    @property
    def log(self) -> PartitionLog:
        """The log. ``ApiError`` KAFKA_STORAGE_ERROR."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of what read_committed may see."""
        ...


class IsrMembership:
    """The rules, and the proposals that come of them."""

    def __init__(self, *, env: Env, max_lag_ms: int, image: Callable[[], MetadataImage]) -> None:
        self.max_lag_ms = max_lag_ms
        self.proposed: dict[tuple[str, int], LocalPartition] = {}
        """Partitions whose ``state.proposed_isr`` the controller is to be asked for."""
        self.wake = trio.Event()
        """Set when something is proposed. Whoever waits for it replaces it."""
        self.expansions = self.shrinkages = 0
        """Proposals so far, for metrics."""
        self.refused = 0
        """Proposals that the controller has not taken, for metrics."""
        self._env = env
        self._image = image

    def _now_ms(self) -> int:
        return int(self._env.now() * 1000)

    def follower_fetched(self, partition: LocalPartition, replica: int) -> None:
        """A follower outside of the ISR has fetched: it may be near enough to join."""
        state = partition.state
        progress = state.progress[replica]
        eligible = self._is_eligible(partition, replica, progress.broker_epoch)
        state.set_joining(
            replica, eligible and progress.is_caught_up(partition.log.log_end_offset, self._now_ms(), self.max_lag_ms)
        )
        if eligible:
            isr = state.maybe_expand_isr(replica)
            if isr is not None:
                self.expansions += 1
                self._propose(partition, isr)

    def reconsider(self, partition: LocalPartition) -> None:
        """Something has changed for followers outside of the ISR, which may not fetch again for a while."""
        if partition.offline:
            return  # a request that waited for the high watermark, which has just moved, may have met a failing disk
        state = partition.state
        end, now_ms = partition.log.log_end_offset, self._now_ms()
        for replica, progress in state.progress.items():
            if (
                replica not in state.maximal_isr
                and progress.log_end_offset >= 0
                and progress.is_caught_up(end, now_ms, self.max_lag_ms)
            ):
                self.follower_fetched(partition, replica)

    def shrink(self, partition: LocalPartition) -> None:
        """Propose to leave out the members that have lagged for too long."""
        state = partition.state
        end, now_ms = partition.log.log_end_offset, self._now_ms()
        for replica, progress in state.progress.items():
            if replica not in state.maximal_isr and not progress.is_caught_up(end, now_ms, self.max_lag_ms):
                state.set_joining(replica, False)
        isr = state.maybe_shrink_isr(log_end_offset=end, now_ms=now_ms, max_lag_ms=self.max_lag_ms)
        if isr is not None:
            logger.info(
                "%s: %s lag behind %d and are to leave the ISR", partition.topic_partition, sorted(state.isr - isr), end
            )
            self.shrinkages += 1
            self._propose(partition, isr)

    def exclude_ineligible(self, partition: LocalPartition) -> None:
        """Brokers were fenced, or started anew: the high watermark does not wait for those to join."""
        state = partition.state
        for replica, progress in state.progress.items():
            if replica not in state.maximal_isr and not self._is_eligible(partition, replica, progress.broker_epoch):
                state.set_joining(replica, False)

    def _is_eligible(self, partition: LocalPartition, broker_id: int, broker_epoch: int) -> bool:
        """``Partition.isReplicaIsrEligible``: neither fenced nor stopping, and fetching in its present life.

        Its log dir has to work, too: every replica seems to have all of a log that is empty, also one whose disk has
        just failed.
        """
        image = self._image()
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or broker_epoch not in (-1, broker.epoch):
            return False
        assigned = image.topics.partition(*partition.topic_partition)
        return assigned is None or broker.has_online_dir(assigned.directory(broker_id))

    def _propose(self, partition: LocalPartition, isr: frozenset[int]) -> None:
        partition.state.propose_isr(isr)
        self.proposed[partition.topic_partition] = partition
        self.wake.set()
