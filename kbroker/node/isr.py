"""Has the ISR of the partitions that this node leads follow the followers (AlterPartition, KIP-497).

A follower that has caught up is proposed to the controller, one that lags for longer than ``replica.lag.time.max.ms``
is proposed to be left out. One request is under way at a time and takes all that is to be changed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.image import RECOVERED
from kbroker.types import Uuid
from kbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Env
    from kbroker.node.partition import Partition
    from kbroker.node.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
"""Between two attempts to reach the active controller."""

_TOLD = 5
"""Partitions that one line of the log names."""

_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The controller changes nothing: what was proposed is taken back."""

_OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The partition is not any more what this node took it for. The metadata will tell; until then the proposal may
have been committed, so it counts (``Partition.handleAlterPartitionError``)."""


class IsrManager:
    """The ISR of this node's partitions. ``run`` it for as long as the node runs."""

    def __init__(
        self,
        *,
        env: Env,
        config: BrokerConfig,
        manager: ReplicaManager,
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._env = env
        self._manager = manager
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._max_lag_ms: int = config.replica_lag_time_max_ms
        self._proposed: dict[tuple[str, int], Partition] = {}
        self._changed: list[str] = []
        self._wake = trio.Event()

    def _now_ms(self) -> int:
        return int(self._env.now() * 1000)

    # --- what is proposed -------------------------------------------------------------------------------------

    def follower_fetched(self, partition: Partition, replica: int) -> None:
        """A follower outside of the ISR has fetched: it may be near enough to join."""
        state = partition.state
        log = partition.log
        progress = state.progress[replica]
        eligible = self._is_eligible(partition, replica, progress.broker_epoch)
        state.set_joining(
            replica, eligible and progress.is_caught_up(log.log_end_offset, self._now_ms(), self._max_lag_ms)
        )
        if eligible:
            isr = state.maybe_expand_isr(replica)
            if isr is not None:
                self._propose(partition, isr)

    def reconsider(self, partition: Partition) -> None:
        """Something has changed for followers outside of the ISR, which may not fetch again for a while."""
        if partition.offline:
            return  # whoever waited for the high watermark, which has just moved, may have met a disk that fails
        state = partition.state
        end, now_ms = partition.log.log_end_offset, self._now_ms()
        for replica, progress in state.progress.items():
            if (
                replica not in state.maximal_isr
                and progress.log_end_offset >= 0
                and progress.is_caught_up(end, now_ms, self._max_lag_ms)
            ):
                self.follower_fetched(partition, replica)

    def shrink(self) -> None:
        """Propose to leave out who lags for too long, in all partitions."""
        now_ms = self._now_ms()
        for partition in list(self._manager.partitions.values()):
            state = partition.state
            if not state.is_leader or not state.progress or partition.offline or not partition.has_log:
                continue
            log = partition.log
            end = log.log_end_offset
            for replica, progress in state.progress.items():
                if replica not in state.maximal_isr and not progress.is_caught_up(end, now_ms, self._max_lag_ms):
                    state.set_joining(replica, False)
            isr = state.maybe_shrink_isr(log_end_offset=end, now_ms=now_ms, max_lag_ms=self._max_lag_ms)
            if isr is not None:
                logger.info(
                    "%s: %s lag behind %d and are to leave the ISR",
                    partition.topic_partition,
                    sorted(state.isr - isr),
                    end,
                )
                self._propose(partition, isr)
            self._manager.advance_high_watermark(partition, log)
            self.reconsider(partition)

    def brokers_changed(self) -> None:
        """Brokers were fenced, or started anew: the high watermark does not wait for those to join."""
        for partition in self._manager.partitions.values():
            state = partition.state
            if not state.is_leader or partition.offline or not partition.has_log:
                continue
            for replica, progress in state.progress.items():
                if replica not in state.maximal_isr and not self._is_eligible(
                    partition, replica, progress.broker_epoch
                ):
                    state.set_joining(replica, False)
            if state.progress:
                self._manager.advance_high_watermark(partition, partition.log)
                self.reconsider(partition)

    def _is_eligible(self, partition: Partition, broker_id: int, broker_epoch: int) -> bool:
        """``Partition.isReplicaIsrEligible``: neither fenced nor stopping, and fetching in its present life. And its
        log dir works: of a log that is empty everyone seems to have all, also whose disk has just failed."""
        image = self._manager.image
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or broker_epoch not in (-1, broker.epoch):
            return False
        assigned = image.topics.partition(*partition.topic_partition)
        return assigned is None or broker.has_online_dir(assigned.directory(broker_id))

    def _propose(self, partition: Partition, isr: frozenset[int]) -> None:
        partition.state.propose_isr(isr)
        self._proposed[partition.topic_partition] = partition
        self._wake.set()

    # --- the controller ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what is proposed, and look for laggards, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_shrinking)
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._proposed:
                    if not await self._send():
                        await trio.sleep(RETRY_SECONDS)

    async def _keep_shrinking(self) -> None:
        while True:
            await trio.sleep(self._max_lag_ms / 2000)
            self.shrink()

    async def _send(self) -> bool:
        """One request with all proposals; false to try (some of) them again after a moment."""
        sent: dict[tuple[Uuid, int], tuple[Partition, int, int, frozenset[int]]] = {}
        topics: dict[Uuid, TopicData] = {}
        for key, partition in list(self._proposed.items()):
            state = partition.state
            if self._manager.partitions.get(key) is not partition or not state.is_leader or state.proposed_isr is None:
                del self._proposed[key]
                continue
            topic_id, index = partition.topic_id, partition.topic_partition.partition
            sent[topic_id, index] = partition, state.leader_epoch, state.partition_epoch, state.proposed_isr
            topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[])).partitions.append(
                PartitionData(
                    partition_index=index,
                    leader_epoch=state.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=self._epoch_of(partition, member))
                        for member in sorted(state.proposed_isr)
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=state.partition_epoch,
                )
            )
        if not sent:
            return True
        response: AlterPartitionResponse | None = await self._ask_controller(
            AlterPartitionRequest(
                broker_id=self._manager.node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
            )
        )
        if response is None or response.error_code:
            if response is not None and response.error_code != ErrorCode.NOT_CONTROLLER:
                logger.info("AlterPartition is answered with %s", ErrorCode.of(response.error_code).name)
            return False
        answered = {
            (Uuid(topic.topic_id), answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        all_done = True
        for where, (partition, leader_epoch, partition_epoch, isr) in sent.items():
            state = partition.state
            asked_for = (leader_epoch, partition_epoch, isr)
            if not state.is_leader or (state.leader_epoch, state.partition_epoch, state.proposed_isr) != asked_for:
                continue  # the metadata were faster; the same ISR may be proposed anew by now, for a later epoch
            found = answered.get(where)
            if found is None or not self._take(partition, found):
                all_done = False
        self._tell()
        return all_done

    def _tell(self) -> None:
        """One line, also where a node's return has changed the ISR of thousands of partitions."""
        changed, self._changed = self._changed, []
        if changed:
            more = f", and {len(changed) - _TOLD} more" if len(changed) > _TOLD else ""
            logger.info("the ISR has changed: %s%s", ", ".join(changed[:_TOLD]), more)

    def _take(self, partition: Partition, answer: ResponsePartitionData) -> bool:
        """The controller's answer for a partition; false to ask again."""
        state = partition.state
        key = partition.topic_partition
        error = answer.error_code
        if not error:
            del self._proposed[key]
            if answer.leader_epoch != state.leader_epoch:
                # It holds, and has completed a reassignment: that is a new leader epoch, which the metadata are to
                # tell. Until then all of whom was proposed count (``Partition.handleAlterPartitionUpdate``).
                logger.info("the ISR of %s has changed in leader epoch %d, which begins", key, answer.leader_epoch)
                return True
            if state.commit_isr(answer.isr, answer.partition_epoch):
                self._changed.append(f"{key} {sorted(state.isr)}")
            else:
                state.withdraw_proposal()
        elif error in _REFUSED:
            logger.info("the controller leaves the ISR of %s as it is: %s", key, ErrorCode(error).name)
            del self._proposed[key]
            state.withdraw_proposal()
        elif error in _OUTDATED:
            logger.info("the ISR of %s is decided elsewhere: %s", key, ErrorCode(error).name)
            del self._proposed[key]
        else:
            logger.info("the ISR of %s could not be changed: error %d", key, error)
            return False
        if partition.has_log and not partition.offline:
            self._manager.advance_high_watermark(partition, partition.log)
            if not error:
                self.reconsider(partition)
        return True

    def _epoch_of(self, partition: Partition, member: int) -> int:
        if member == self._manager.node_id:
            return self._broker_epoch()
        progress = partition.state.progress.get(member)
        if progress is not None and progress.broker_epoch >= 0:
            return progress.broker_epoch
        broker = self._manager.image.brokers.get(member)
        return -1 if broker is None else int(broker.epoch)
