"""The node's transaction coordinator: shards over ``__transaction_state``, and the markers that they ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.settings import TransactionSettings
from kbroker.cores.transactions.transaction import TV_2, Transaction, TransactionMarker
from kbroker.errors import ApiError, ErrorCode
from kbroker.log.segments.indexed_file import CorruptSegment
from kbroker.log.segments.sparse_index import CorruptIndex
from kbroker.node.coordinators.broker_requests import BrokerRequests, MarkerQuestion, MembershipQuestion
from kbroker.node.coordinators.coordinator_driver import CoordinatorDriver
from kbroker.node.coordinators.coordinator_shard import Shard
from kbroker.node.coordinators.transaction_markers import MarkerWriter
from kbroker.raft_metadata.features import TRANSACTION_VERSION
from kbroker.raft_metadata.topics import TRANSACTION_STATE_TOPIC
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.cores.transactions.coordinator import MarkersToWrite, ProducerIdAndEpoch, TransactionCoordinator
    from kbroker.node.coordinators.producer_ids import ProducerIdAllocator
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)


R = TypeVar("R")
PartitionErrors = dict[TopicPartition, ErrorCode]


class TransactionDriver(CoordinatorDriver["TransactionCoordinator"]):
    """Drives the transactions that this node coordinates."""

    TOPIC = TRANSACTION_STATE_TOPIC
    WHAT_IT_HOLDS = "transactions"
    REPLAY_ON_COMMIT = True
    """A partition that counts as added must stay added, also under the next leader."""

    def __init__(
        self,
        *,
        env: Env,
        replica_manager: ReplicaManager,
        settings: Callable[[MetadataImage], TransactionSettings],
        producer_ids: ProducerIdAllocator,
        markers: MarkerWriter,
        remote_markers: BrokerRequests[MarkerQuestion],
        remote_coordinators: BrokerRequests[MembershipQuestion],
    ) -> None:
        """``settings`` computes the settings from a metadata image. ``remote_markers`` asks other brokers as leaders of
        partitions, ``remote_coordinators`` asks them as coordinators."""
        super().__init__(env, replica_manager)
        self._compute_settings = settings
        self.settings = TransactionSettings()
        """The settings in force now."""
        self._producer_ids = producer_ids
        self._markers = markers
        self._remote_markers = remote_markers
        self._remote_coordinators = remote_coordinators
        self._image: MetadataImage | None = None
        self._to_add: dict[
            tuple[str | None, ProducerIdAndEpoch, int], list[tuple[Collection[TopicPartition], Later[None]]]
        ] = {}
        """By transactional id, producer and version: partitions whose addition has not begun, and its outcome."""
        self._awaited: dict[str, list[trio.Event]] = {}
        """By transactional id that requests wait for: events, set when no change of the id is under way any more."""

    @property
    def transaction_version(self) -> int:
        """The feature level that the cluster has finalized."""
        return 0 if self._image is None else self._image.features.levels.get(TRANSACTION_VERSION, 0)

    def _new_core(self) -> TransactionCoordinator:
        # With the first shard: a node without transactions starts without them.
        from kbroker.cores.transactions.coordinator import TransactionCoordinator

        return TransactionCoordinator(
            lambda: self.settings,
            lambda: self.transaction_version,
            self._producer_ids.take,
            self._lacks_marker,
            self.clock_ahead_ms,
        )

    def _before_loaded(self, core: TransactionCoordinator) -> Iterator[None]:
        return core.find_lost_markers()

    def _lacks_marker(self, key: TopicPartition, decision: Transaction) -> Generator[None, None, bool]:
        partition = self._manager.find(*key)
        if partition is None or partition.offline or not (partition.has_log and partition.state.is_leader):
            return False
        producer_id, epoch, log = decision.producer_id, decision.producer_epoch, partition.log
        # From version 2 on a marker has the next epoch, as has one that fences its producer.
        if log.producers.has_ongoing_transaction(producer_id, epoch - 1):
            return True
        # Else the next transaction has the same epoch, and may be the open one: its beginning may be lost here.
        if decision.client_version >= TV_2 or not log.producers.has_ongoing_transaction(producer_id, epoch):
            return False
        began = log.producers.active_producers[producer_id].current_txn_first_offset
        try:
            if (yield from log.has_marker(producer_id, decision.start_ms)):
                return False
        except (CorruptSegment, CorruptIndex, OSError):
            return False
        producer = log.producers.active_producers.get(producer_id)
        return producer is not None and producer.current_txn_first_offset == began  # it is still the open one

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
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

    def run_when_free(
        self,
        transactional_id: str | None,
        operation: Callable[[TransactionCoordinator, int], CoordinatorResult[R]],
        outcome: Later[R],
        *,
        patience_ms: int,
    ) -> None:
        """Run a step once its shard is loaded and has the producer ids that the step needs, and no other change of the
        transactional id is under way. ``outcome`` gets its response or any error.

        ``patience_ms`` bounds the wait for another change; CONCURRENT_TRANSACTIONS after that. The wait takes some
        milliseconds, and a client that has to try again waits for a tenth of a second.
        """
        if not transactional_id:
            outcome.fail(ApiError(ErrorCode.INVALID_REQUEST))
            return
        try:
            self.run(transactional_id, operation, outcome=outcome)
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or (
                patience_ms and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            ):
                self._manager.start_soon(self._run_later, transactional_id, operation, outcome, patience_ms)
            else:
                outcome.fail(error)
        except Exception:
            _fail(transactional_id, outcome)

    async def _run_later(
        self,
        transactional_id: str,
        operation: Callable[[TransactionCoordinator, int], CoordinatorResult[R]],
        outcome: Later[R],
        patience_ms: int,
    ) -> None:
        deadline = trio.current_time() + patience_ms / 1000
        try:
            while True:
                try:
                    # Before each wait: what it is for may have come before this task had its turn.
                    self.run(transactional_id, operation, outcome=outcome)
                    return
                except ApiError as error:
                    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        await self.until_loaded(transactional_id)
                        await self._producer_ids.ensure()
                    elif error.code is ErrorCode.CONCURRENT_TRANSACTIONS and trio.current_time() < deadline:
                        await self._until_free(transactional_id, deadline)
                    else:
                        raise
        except ApiError as error:
            outcome.fail(error)
        except Exception:
            _fail(transactional_id, outcome)

    async def _until_free(self, transactional_id: str, deadline: float) -> None:
        """Wait until no change of a transactional id is under way, or its shard is dropped."""
        free = trio.Event()
        waiters = self._awaited.setdefault(transactional_id, [])
        waiters.append(free)
        with trio.move_on_at(deadline):
            await free.wait()
        if not free.is_set():
            waiters.remove(free)
            if not waiters:
                del self._awaited[transactional_id]

    # -- markers -------------------------------------------------------------------------------

    def after_step(self, shard: Shard[TransactionCoordinator]) -> None:
        """Write the markers that the core asks for, and wake requests that waited for the end of a change."""
        if self.shards.get(shard.index) is not shard:
            return  # the core that has been loaded instead carries the decision out
        for markers in shard.core.take_markers():
            self._write_markers(shard, markers)
        for transactional_id in [each for each in self._awaited if self.partition_for(each) == shard.index]:
            if not shard.core.is_busy(transactional_id):
                self._wake_awaiting(transactional_id)
        super().after_step(shard)

    def _unload(self, index: int) -> None:
        super()._unload(index)
        for transactional_id in list(self._awaited):  # each of another shard waits again
            self._wake_awaiting(transactional_id)

    def _wake_awaiting(self, transactional_id: str) -> None:
        for free in self._awaited.pop(transactional_id):
            free.set()

    def _write_markers(self, shard: Shard[TransactionCoordinator], markers: MarkersToWrite) -> None:
        """Have each leader write the markers of its partitions."""
        assert self._image is not None, "a shard comes with an image"
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
            if self.shards.get(shard.index) is not shard:
                return
            try:
                result = shard.core.on_markers_written(markers, errors, self.now_ms())
            except Exception:
                self.failed(shard)
            else:
                self._steps.process(shard, result)

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

    # -- partitions ----------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        outcome: Later[None],
        *,
        patience_ms: int,
    ) -> None:
        """Add partitions to a transaction that this node coordinates. ``outcome`` is done when they are in it.

        The first batches of a transaction come to several leaders at the same time, in several requests each. The
        partitions that come while a change of the id is under way wait, as in `run_when_free`, and are added together:
        each change takes as long as replication.
        """
        key = (transactional_id, producer, client_version)
        joined = self._to_add.get(key)
        if joined is not None:
            joined.append((partitions, outcome))
            return
        together = self._to_add[key] = [(partitions, outcome)]

        def add(core: TransactionCoordinator, now_ms: int) -> CoordinatorResult[None]:
            assert transactional_id is not None
            every = list(dict.fromkeys(each for some, _outcome in together for each in some))
            result = core.add_partitions(transactional_id, producer, every, client_version, now_ms)
            del self._to_add[key]  # partitions that come from now on are in the next change
            return result

        added: Later[None] = Later()

        def on_added() -> None:
            if self._to_add.get(key) is together:
                del self._to_add[key]
            for _partitions, each in together:
                if added.error is None:
                    each.set(None)
                else:
                    each.fail(added.error)

        added.on_done(on_added)
        self.run_when_free(transactional_id, add, added, patience_ms=patience_ms)

    def add_or_verify(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        add: bool,
    ) -> Later[PartitionErrors]:
        """Ask the transaction's coordinator before a partition takes the first batch of a transaction (KIP-890).

        The question is whether the partitions are in the transaction or, with ``add``, to add them. The value is the
        error of each partition, and often there at once.
        """
        answer: Later[PartitionErrors] = Later()

        def all_get(code: ErrorCode) -> None:
            answer.set(dict.fromkeys(partitions, code))

        if not transactional_id:
            all_get(ErrorCode.INVALID_REQUEST)
            return answer
        leader = self._coordinator_of(transactional_id)
        if leader < 0:
            all_get(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif leader != self._manager.node_id:
            question = MembershipQuestion(transactional_id, producer, tuple(partitions), add, answer.set)
            self._remote_coordinators.ask(leader, question)
        elif add:
            from kbroker.cores.transactions.transaction import TV_2  # as the core itself

            added: Later[None] = Later()
            added.on_done(lambda: all_get(ErrorCode.NONE if added.error is None else added.error.code))
            patience_ms = self.settings.add_partitions_retry_backoff_max_ms
            self.add_partitions(transactional_id, producer, partitions, TV_2, added, patience_ms=patience_ms)
        else:
            try:
                answer.set(self.loaded_core(transactional_id).verify_partitions(transactional_id, producer, partitions))
            except ApiError as error:
                all_get(error.code)
        return answer

    def knows(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether this node coordinates the id, and the partition is in the open transaction of that producer."""
        try:
            core = self.loaded_core(transactional_id)
            return core.verify_partitions(transactional_id, producer, (partition,))[partition] is ErrorCode.NONE
        except ApiError:
            return False

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id; -1 if none does now."""
        index = self.partition_for(transactional_id)
        image = self._image
        found = None if index is None or image is None else image.topics.partition(self.TOPIC, index)
        return -1 if found is None else found.leader

    def backoff(self) -> Later[None]:
        """Done when a leader that met a concurrent transaction may ask the coordinator again."""
        over: Later[None] = Later()

        async def sleep() -> None:
            await trio.sleep(self.settings.add_partitions_retry_backoff_ms / 1000)
            over.set(None)

        self._manager.start_soon(sleep)
        return over


def _fail(transactional_id: str, outcome: Later[Any]) -> None:
    """Log the exception that is being handled, and answer UNKNOWN_SERVER_ERROR."""
    logger.exception("a request about the transactional id %r failed", transactional_id)
    outcome.fail(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
