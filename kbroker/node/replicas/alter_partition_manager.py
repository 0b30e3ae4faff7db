"""Asks the controller for the ISR changes that ``node.replicas.isr`` proposes (AlterPartition, KIP-497).

One request is under way at a time, for many partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

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
    from kbroker.node.replicas.isr import IsrMembership, LocalPartition
    from kbroker.node.replicas.partition_events import Progress
    from kbroker.node.replicas.partition_table import PartitionTable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
"""Between two attempts to reach the active controller."""

_NAMED_PARTITIONS = 5
"""Partitions that one line of the log names."""

_MOST_PROPOSALS = 128
"""Of one request: each takes the controller 30 us, in one step."""

_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The controller changes nothing: the proposal is withdrawn."""

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
"""Errors for a partition that has changed since the proposal. A newer image will show the change. Until then the
proposal may have been committed, so it counts (``Partition.handleAlterPartitionError``)."""


class _Proposal(NamedTuple):
    """An ISR that the controller is asked for, in the epochs of that moment."""

    partition: LocalPartition
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]

    def is_current(self) -> bool:
        """Whether the partition still waits for the answer to exactly this."""
        state = self.partition.state
        asked_for = (self.leader_epoch, self.partition_epoch, self.isr)
        return state.is_leader and (state.leader_epoch, state.partition_epoch, state.proposed_isr) == asked_for


class AlterPartitionManager:
    """Sends proposals and applies the answers. ``run`` it for as long as the node runs."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        progress: Progress,
        isr: IsrMembership,
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._table = table
        self._progress = progress
        self._isr = isr
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._changed: list[str] = []

    async def run(self) -> None:
        """Send proposals, and look for members that lag, until cancelled."""
        isr = self._isr
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_shrinking)
            while True:
                await isr.wake.wait()
                isr.wake = trio.Event()
                while isr.proposed:
                    if not await self._send():
                        await trio.sleep(RETRY_SECONDS)

    async def _keep_shrinking(self) -> None:
        while True:
            await trio.sleep(self._isr.max_lag_ms / 2000)
            await self.shrink()

    async def shrink(self) -> None:
        """Propose to leave out members that have lagged for too long, in all partitions (``maybeShrinkIsr``)."""
        for number, partition in enumerate(self._table.led_with_followers(), 1):
            self._isr.shrink(partition)
            self._progress.isr_changed(partition)
            if number % self._progress.env.budgets.turn_isrs == 0:
                await trio.lowlevel.checkpoint()

    async def _send(self) -> bool:
        """Send all proposals in one request; false to try (some of) them again after a moment."""
        sent = self._take_valid()
        if not sent:
            return True
        response: AlterPartitionResponse | None = await self._ask_controller(self._request(sent))
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
        for proposal in sent:
            partition = proposal.partition
            if not proposal.is_current():
                continue  # the metadata were faster; the same ISR may be proposed again by now, for a later epoch
            found = answered.get((partition.topic_id, partition.topic_partition.partition))
            if found is None or not self._apply(partition, found):
                all_done = False
        self._log_changes()
        return all_done

    def _take_valid(self) -> list[_Proposal]:
        """Some proposals of partitions that are still led here; others are dropped, or are for the next request."""
        proposed = self._isr.proposed
        valid = []
        for key, partition in list(islice(proposed.items(), _MOST_PROPOSALS)):
            state = partition.state
            proposed[key] = proposed.pop(key)  # those that have to be asked for again come after all others
            if self._table.partitions.get(key) is not partition or not state.is_leader or state.proposed_isr is None:
                del proposed[key]
            else:
                valid.append(_Proposal(partition, state.leader_epoch, state.partition_epoch, state.proposed_isr))
        return valid

    def _request(self, proposals: Sequence[_Proposal]) -> AlterPartitionRequest:
        topics: dict[Uuid, TopicData] = {}
        for partition, leader_epoch, partition_epoch, isr in proposals:
            topic_id = partition.topic_id
            topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[])).partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=self._epoch_of(partition, member))
                        for member in sorted(isr)
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._table.node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _log_changes(self) -> None:
        """Log one line, also where a node's return has changed the ISR of thousands of partitions."""
        changed, self._changed = self._changed, []
        if changed:
            more = f", and {len(changed) - _NAMED_PARTITIONS} more" if len(changed) > _NAMED_PARTITIONS else ""
            logger.info("the ISR has changed: %s%s", ", ".join(changed[:_NAMED_PARTITIONS]), more)

    def _apply(self, partition: LocalPartition, answer: ResponsePartitionData) -> bool:
        """Apply the controller's answer for a partition; false to ask again."""
        state = partition.state
        key = partition.topic_partition
        error = answer.error_code
        self._isr.refused += bool(error)
        if not error:
            del self._isr.proposed[key]
            if answer.leader_epoch != state.leader_epoch:
                # The change is committed and has completed a reassignment, which begins a leader epoch. Until the image
                # has that, all proposed members count (``Partition.handleAlterPartitionUpdate``).
                logger.info("the ISR of %s has changed in leader epoch %d, which begins", key, answer.leader_epoch)
                return True
            if state.commit_isr(answer.isr, answer.partition_epoch):
                self._changed.append(f"{key} {sorted(state.isr)}")
            else:
                state.withdraw_proposal()
        elif error in _REFUSED:
            logger.info("the controller leaves the ISR of %s as it is: %s", key, ErrorCode(error).name)
            del self._isr.proposed[key]
            state.withdraw_proposal()
        elif error in _OUTDATED:
            logger.info("the ISR of %s is decided elsewhere: %s", key, ErrorCode(error).name)
            del self._isr.proposed[key]
        else:
            logger.info("the ISR of %s could not be changed: error %d", key, error)
            return False
        if partition.has_log and not partition.offline:
            if error:
                self._progress.advance_high_watermark(partition, partition.log)
            else:
                self._progress.isr_changed(partition)
        return True

    def _epoch_of(self, partition: LocalPartition, member: int) -> int:
        if member == self._table.node_id:
            return self._broker_epoch()
        progress = partition.state.progress.get(member)
        if progress is not None and progress.broker_epoch >= 0:
            return progress.broker_epoch
        broker = self._table.image.brokers.get(member)
        return -1 if broker is None else int(broker.epoch)
