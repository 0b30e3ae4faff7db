"""The node's transaction coordinator: shards over ``__transaction_state``, and the markers that they ask for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kbroker.coordinator.core import append_error_for_client
from kbroker.coordinator.result import CoordinatorResult
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.broker_requests import BrokerRequests, MarkerQuestion, MembershipQuestion
from kbroker.node.coordinator_driver import CoordinatorDriver
from kbroker.node.coordinator_shard import Shard
from kbroker.node.transaction_markers import MarkerWriter
from kbroker.raft_metadata.image import TRANSACTION_VERSION
from kbroker.transactions.coordinator import MarkersToWrite, ProducerIdAndEpoch, TransactionCoordinator
from kbroker.transactions.marker import TransactionMarker
from kbroker.transactions.settings import TransactionSettings
from kbroker.transactions.transaction import TV_2
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.producer_ids import ProducerIdAllocator
    from kbroker.node.replica_manager import ReplicaManager

TRANSACTION_STATE_TOPIC = "__transaction_state"

R = TypeVar("R")
PartitionErrors = dict[TopicPartition, ErrorCode]


class TransactionDriver(CoordinatorDriver[TransactionCoordinator]):
    """Drives the transactions that this node coordinates."""

    TOPIC = TRANSACTION_STATE_TOPIC
    CONTENT = "transactions"
    REPLAYS_COMMITTED = True
    """What is read must not be lost with the leadership: a partition that counts as added stays added."""
    WITHOUT_TOPIC = ErrorCode.NOT_COORDINATOR

    def __init__(
        self,
        *,
        env: Env,
        replica_manager: ReplicaManager,
        settings: Callable[[Any], TransactionSettings],
        producer_ids: ProducerIdAllocator,
        markers: MarkerWriter,
        remote_markers: BrokerRequests[MarkerQuestion],
        remote_coordinators: BrokerRequests[MembershipQuestion],
    ) -> None:
        """``settings`` are computed from a metadata image, when its configs have changed. The ``remote`` ones ask other
        brokers: leaders of partitions, and coordinators."""
        super().__init__(env, replica_manager)
        self._compute_settings = settings
        self.settings = TransactionSettings()
        """What is in force now."""
        self._producer_ids = producer_ids
        self._markers = markers
        self._remote_markers = remote_markers
        self._remote_coordinators = remote_coordinators
        self._image: Any = None
        self._retrying: dict[int, deque[Callable[[], bool]]] = {}
        self._awaited: dict[str, trio.Event] = {}
        """Transactional ids that requests wait for: set when no change of theirs is under way any more."""

    @property
    def transaction_version(self) -> int:
        """What the cluster has finalized."""
        return 0 if self._image is None else int(self._image.features.levels.get(TRANSACTION_VERSION, 0))

    def _new_core(self) -> TransactionCoordinator:
        return TransactionCoordinator(lambda: self.settings, lambda: self.transaction_version, self._producer_ids.take)

    def on_image(self, delta: Any, image: Any) -> None:
        """Follow leadership, configs and the finalized version."""
        before, self._image = self._image, image
        if before is None or before.configs is not image.configs:
            self.settings = self._compute_settings(image)
        super().on_image(delta, image)
        for broker_id in sorted(delta.changed_brokers):
            broker = image.brokers.get(broker_id)
            old = None if before is None else before.brokers.get(broker_id)
            if old is not None and (broker is None or broker.fenced or broker.epoch != old.epoch):
                self._remote_markers.give_up(broker_id)
                self._remote_coordinators.give_up(broker_id)

    # -- requests ------------------------------------------------------------------------------

    def submit_now(
        self,
        key: str,
        operation: Callable[[TransactionCoordinator, int], CoordinatorResult[R]],
        on_committed: Callable[[R | None, ApiError | None], None],
    ) -> None:
        """As `submit`, without waiting. ``on_committed`` is called with the response, or with why there is none.

        That happens as soon as the records are committed, often at once, and before the rest of the step: who has
        asked need not wait until markers are written, say. `ApiError` for what the step refuses, also
        COORDINATOR_LOAD_IN_PROGRESS; then ``on_committed`` is not called. What has no records is answered at once, as
        the core knows only what is committed.
        """
        shard = self.shard_now(key)
        self._append_gathered(shard)
        result = operation(shard.core, self.now_ms())

        def committed(append_error: ErrorCode | None) -> None:
            if append_error is not None:
                on_committed(None, ApiError(append_error_for_client(append_error)))
            elif result.error is not None:
                on_committed(None, result.error)
            else:
                on_committed(result.response, None)

        self._process(shard, result, on_committed=committed)

    async def until_free(self, transactional_id: str) -> None:
        """Wait until no change of a transactional id is under way, for as long as Produce does at most."""
        event = self._awaited.setdefault(transactional_id, trio.Event())
        with trio.move_on_after(self.settings.add_partitions_retry_backoff_max_ms / 1000):
            await event.wait()
        if self._awaited.get(transactional_id) is event:
            del self._awaited[transactional_id]

    # -- markers -------------------------------------------------------------------------------

    def _after_step(self, shard: Shard[TransactionCoordinator]) -> None:
        for markers in shard.core.take_markers():
            self._write_markers(shard, markers)
        if self._awaited:
            for transactional_id in [each for each in self._awaited if self.partition_for(each) == shard.index]:
                if not shard.core.is_busy(transactional_id):
                    self._awaited.pop(transactional_id).set()

    def _write_markers(self, shard: Shard[TransactionCoordinator], markers: MarkersToWrite) -> None:
        """Each leader writes those of its partitions."""
        find = self._image.topics.partition
        errors: PartitionErrors = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in markers.partitions:
            found = find(*each)
            if found is None:
                errors[each] = ErrorCode.NONE  # It was deleted and needs none.
            elif found.leader < 0:
                errors[each] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                by_leader.setdefault(found.leader, []).append(each)
        missing = len(by_leader)

        def report() -> None:
            if self._shards.get(shard.index) is not shard:
                return
            try:
                result = shard.core.on_markers_written(markers, errors, self.now_ms())
            except Exception:
                self._failed(shard)
            else:
                self._process(shard, result)

        def done(written: PartitionErrors) -> None:
            nonlocal missing
            errors.update(written)
            missing -= 1
            if not missing:
                report()

        marker = TransactionMarker(
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            commit=markers.commit,
            coordinator_epoch=shard.leader_epoch,
            transaction_version=markers.transaction_version,
        )
        if not by_leader:
            report()
        for leader, partitions in by_leader.items():
            if leader == self._manager.node_id:
                self._markers.write(marker, partitions, done)
            else:
                self._remote_markers.ask(leader, MarkerQuestion(marker, partitions, done))

    # -- verification --------------------------------------------------------------------------

    def add_or_verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        add: bool,
        on_done: Callable[[PartitionErrors], None],
    ) -> None:
        """Ask the transaction's coordinator before a partition takes the first batch of a transaction (KIP-890).

        Either whether the partitions are in the transaction, or to ``add`` them. ``on_done`` is called with the
        error of each, often at once.
        """

        def all_get(code: ErrorCode) -> None:
            on_done(dict.fromkeys(partitions, code))

        if not transactional_id:
            all_get(ErrorCode.INVALID_REQUEST)
            return
        leader = self._coordinator_of(transactional_id)
        if leader < 0:
            all_get(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if leader != self._manager.node_id:
            self._remote_coordinators.ask(
                leader, MembershipQuestion(transactional_id, producer, tuple(partitions), add, on_done)
            )
            return
        try:
            if add:
                self.perform(
                    transactional_id,
                    lambda shard, now_ms: shard.add_partitions(transactional_id, producer, partitions, TV_2, now_ms),
                    all_get,
                )
                return
            core = self.shard_now(transactional_id).core
            errors = core.verify_partitions(transactional_id, producer, partitions)
        except ApiError as error:
            all_get(error.code)
            return
        on_done(errors)

    def knows(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether this node coordinates the id, and the partition is in the open transaction of that producer."""
        try:
            core = self.shard_now(transactional_id).core
            return core.verify_partitions(transactional_id, producer, (partition,))[partition] is ErrorCode.NONE
        except ApiError:
            return False

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id; -1 if none does now."""
        index = self.partition_for(transactional_id)
        found = None if index is None else self._image.topics.partition(self.TOPIC, index)
        return -1 if found is None else int(found.leader)

    def is_retrying(self, producer_id: int) -> bool:
        """Whether requests of this producer wait for its last transaction to be complete."""
        return producer_id in self._retrying

    def retry(self, producer_id: int, attempt: Callable[[], bool]) -> None:
        """Call ``attempt`` after a moment, and again until it is true. Those of one producer keep their order."""
        waiting = self._retrying.setdefault(producer_id, deque())
        waiting.append(attempt)
        if len(waiting) == 1:
            self._manager.start_soon(self._work_off, producer_id)

    async def _work_off(self, producer_id: int) -> None:
        waiting = self._retrying[producer_id]
        while waiting:
            await trio.sleep(self.settings.add_partitions_retry_backoff_ms / 1000)
            while waiting and waiting[0]():
                waiting.popleft()
        del self._retrying[producer_id]
