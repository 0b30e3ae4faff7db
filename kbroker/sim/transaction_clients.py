"""Clients of coordinators in a simulated cluster: a transactional producer, and one that commits offsets."""

from __future__ import annotations

from enum import Enum
from typing import Any

import trio

from kbroker.coordinator.partitioner import partition_for
from kbroker.errors import ErrorCode
from kbroker.sim.clients import ClusterClient
from kbroker.sim.history import History, Transaction, TransactionState, Violation, make_value
from kbroker.sim.sim_env import EPOCH_MS
from kbroker.types import TopicPartition
from kbroker.wire.messages.end_txn import EndTxnRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.record_batch import Record, build_batch

OFFSETS_TOPIC = "__consumer_offsets"

GROUP, TRANSACTION = 0, 1
"""Types of coordinator keys."""

TRY_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The coordinator is another, or not ready, or cannot store anything now."""

_GIVE_UP = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The coordinator has ended the transaction for being too long, or is about to."""


class _Sent(Enum):
    STORED = 1
    REFUSED = 2


class Coordinated:
    """Finds the coordinator of a key, and asks it until it answers."""

    def __init__(self, client: ClusterClient, key: str, key_type: int) -> None:
        self.client = client
        self.key = key
        self._key_type = key_type
        self.node_id = -1

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The coordinator's response; None if there was none this time."""
        client = self.client
        if self.node_id < 0:
            found = await client.ask(
                client.any_node(), FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self.key])
            )
            if found is None or found.coordinators[0].error_code:
                await trio.sleep(0.2)
                return None
            self.node_id = found.coordinators[0].node_id
        response = await client.ask(self.node_id, request, version)
        if response is None:
            await self.lost()
        return response

    async def lost(self) -> None:
        """It is another, or cannot be reached: look again, after a while."""
        self.node_id = -1
        await trio.sleep(0.1)


class TransactionalProducer:
    """Writes transactions to some partitions (KIP-890: version 2) and commits or aborts them."""

    def __init__(
        self,
        number: int,
        client: ClusterClient,
        history: History,
        partitions: list[TopicPartition],
        interval: float,
        timeout_ms: int = 10_000,
    ) -> None:
        self.number = number
        self.interval = interval
        self.stopped = False
        self.name = f"txn-{number}"
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinated(client, self.name, TRANSACTION)
        self._client = client
        self._history = history
        self._partitions = partitions
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0

    async def run(self) -> None:
        """One transaction after the other until ``stopped``."""
        rng = self._client.rng
        while not self.stopped:
            if self._producer_id < 0 and not await self._begin():
                continue
            transaction = self._history.begin(self.name)
            stored = True
            for _ in range(rng.choice((1, 2, 3))):
                stored = await self._produce(transaction) is _Sent.STORED
                if not stored:
                    break
                await trio.sleep(rng.expovariate(4 / self.interval))
            if not stored:
                transaction.end(TransactionState.ABORTED)
                self._producer_id = -1  # as an application that starts anew: this aborts what is open
            else:
                await self._end(transaction, commit=rng.random() < 0.7)
            await trio.sleep(rng.expovariate(1 / self.interval))

    async def _begin(self) -> bool:
        response = await self._coordinator.ask(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        )
        if response is None:
            return False
        if response.error_code:
            if ErrorCode(response.error_code) not in TRY_AGAIN:
                raise Violation(f"{self.name}: InitProducerId is answered {ErrorCode(response.error_code).name}")
            await self._coordinator.lost()
            return False
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        return True

    async def _produce(self, transaction: Transaction) -> _Sent:
        client = self._client
        tp = client.rng.choice(self._partitions)
        values = [make_value(self.number, self._count + n) for n in range(client.rng.choice((1, 1, 4)))]
        self._count += len(values)
        for value in values:
            self._history.add(transaction, tp, value)
        sequence = self._sequences.get(tp, 0)
        now_ms = EPOCH_MS + int(trio.current_time() * 1000)
        batch = build_batch(
            [Record(0, now_ms, None, value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        while True:
            found = await client.leader(tp)
            if found is None:
                await trio.sleep(0.1)
                continue
            data = PartitionProduceData(index=tp.partition, records=memoryview(bytearray(batch)))
            request = ProduceRequest(
                transactional_id=self.name,
                acks=-1,
                timeout_ms=3000,
                topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
            )
            response = await client.ask(found[0], request, version=12, timeout=6.0)
            if response is not None:
                code = ErrorCode(response.responses[0].partition_responses[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._sequences[tp] = sequence + len(values)
                    return _Sent.STORED
                self._history.refused(code.name)
                if code in _GIVE_UP:
                    return _Sent.REFUSED
                if code not in TRY_AGAIN:
                    raise Violation(f"{tp}: a transactional producer was told {code.name}")
            client.forget(tp)
            await trio.sleep(0.1)

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.end(TransactionState.COMMITTING if commit else TransactionState.ABORTED)
        unanswered = False
        while True:
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                committed=commit,
            )
            response = await self._coordinator.ask(request, 5)
            if response is None:
                unanswered = True
                continue
            code = ErrorCode(response.error_code)
            if code == ErrorCode.NONE:
                if response.producer_id >= 0:
                    self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self._sequences.clear()
                if commit:
                    self._history.committed(transaction)
                return
            if code in _GIVE_UP:
                self._producer_id = -1
                if commit and not unanswered:
                    transaction.end(TransactionState.ABORTED)
                return
            if code not in TRY_AGAIN:
                raise Violation(f"{self.name}: EndTxn is answered {code.name}")
            # A coordinator that times out may have stored the decision all the same.
            unanswered = True
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                await self._coordinator.lost()
            else:
                await trio.sleep(0.05)


class OffsetCommitter:
    """Commits ever higher offsets for a group, and looks them up again: they never go back."""

    def __init__(
        self, number: int, client: ClusterClient, tp: TopicPartition, offsets_partitions: int
    ) -> None:
        self._offsets_partitions = offsets_partitions
        self.group = f"group-{number}"
        self.stopped = False
        self.commits = 0
        self._coordinator = Coordinated(client, self.group, GROUP)
        self._client = client
        self._tp = tp
        self._tried = 0
        self._committed = -1

    async def run(self) -> None:
        """Until ``stopped``."""
        rng = self._client.rng
        while not self.stopped:
            if rng.random() < 0.7:
                await self._commit()
            else:
                await self.look_up()
            await trio.sleep(rng.expovariate(2))

    async def _commit(self) -> None:
        self._tried += 1
        partition = OffsetCommitRequestPartition(partition_index=self._tp.partition, committed_offset=self._tried)
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=self._tp.topic, partitions=[partition])]
        )
        response = await self._coordinator.ask(request, 9)
        if response is None:
            return
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code == ErrorCode.NONE:
            self.commits += 1
            self._committed = self._tried
        elif code in TRY_AGAIN:
            await self._coordinator.lost()
        else:
            raise Violation(f"{self.group}: OffsetCommit is answered {code.name}")

    async def look_up(self) -> bool:
        """Ask what is committed; whether there was an answer."""
        topic = OffsetFetchRequestTopics(name=self._tp.topic, partition_indexes=[self._tp.partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[topic])], require_stable=True
        )
        where = TopicPartition(OFFSETS_TOPIC, partition_for(self.group, self._offsets_partitions))
        authority = self._client.authority(where)
        response = await self._coordinator.ask(request, 9)
        if response is None:
            return False
        group = response.groups[0]
        answer = group.topics[0].partitions[0] if group.topics else None
        code = ErrorCode(group.error_code or (answer.error_code if answer is not None else 0))
        if code != ErrorCode.NONE or answer is None:
            if code not in TRY_AGAIN and code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise Violation(f"{self.group}: OffsetFetch is answered {code.name}")
            await self._coordinator.lost()
            return False
        if authority is None or authority[0] != self._coordinator.node_id or authority != self._client.authority(where):
            await self._coordinator.lost()
            return False
        if not self._committed <= answer.committed_offset <= self._tried:
            raise Violation(
                f"{self.group}: committed is {answer.committed_offset}, after {self._committed} was acknowledged"
                f" and {self._tried} tried"
            )
        return True
