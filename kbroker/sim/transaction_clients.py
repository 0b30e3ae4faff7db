"""Clients of coordinators in a simulated cluster: transactional producers, and groups that commit offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import trio

from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.cores.transactions.transaction import partitions_by_topic
from kbroker.errors import ErrorCode
from kbroker.sim.clients import ClusterClient
from kbroker.sim.history import History
from kbroker.sim.produce_stream import PRODUCE_VERSION, make_batch
from kbroker.sim.sender import GIVE_UP, Sender
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from kbroker.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

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


class Coordinated:
    """Finds the coordinator of a key, and asks it until it answers."""

    def __init__(self, client: ClusterClient, key: str, key_type: int, late: LateRequests | None = None) -> None:
        self.client = client
        self.key = key
        self._key_type = key_type
        self._late = late
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
        if self._late is not None:
            self._late.note(self.node_id, request, version)
        response = await client.ask(self.node_id, request, version)
        if response is None:
            await self.lost()
        return response

    async def lost(self) -> None:
        """Look for the coordinator again, after a while: it is another, or cannot be reached."""
        self.node_id = -1
        await trio.sleep(0.1)


class LateRequests:
    """A network that delivers some requests of transactions once more, when nobody thinks of them any longer.

    As when a client gives up a request and sends it anew on another connection: the first may arrive after all that
    followed it (KAFKA-17754).
    """

    def __init__(self, client: ClusterClient, start_soon: Callable[..., None], share: float) -> None:
        """``client`` is one of their own; ``share`` of the requests come twice."""
        self._client = client
        self._start_soon = start_soon
        self._share = share
        self.delivered = 0

    def note(self, node_id: int, request: Any, version: int | None) -> None:
        """A request is on its way."""
        if self._client.rng.random() < self._share:
            after = self._client.rng.choice((0.01, 0.1, 0.5, 2, 6)) * self._client.rng.random()
            self._start_soon(self._deliver, after, node_id, request, version)

    async def _deliver(self, after: float, node_id: int, request: Any, version: int | None) -> None:
        await trio.sleep(after)
        if await self._client.ask(node_id, request, version, timeout=5.0) is not None:
            self.delivered += 1


class Ending(Enum):
    """The end of a transaction, as far as its client knows."""

    DONE = 1
    UNKNOWN = 2
    """Fenced, after a request that was not answered: it may have been stored."""
    REFUSED = 3


class TransactionalClient:
    """A transactional id's requests, in transaction version 1 or 2, each sent until it is answered."""

    def __init__(
        self,
        name: str,
        client: ClusterClient,
        history: History,
        *,
        version: int = 2,
        timeout_ms: int = 10_000,
        late: LateRequests | None = None,
    ) -> None:
        self.name = name
        self.client = client
        self.history = history
        self.version = version
        self.producer_id = -1
        self.producer_epoch = -1
        self.timeout_ms = timeout_ms
        self._late = late
        self._coordinator = Coordinated(client, name, TRANSACTION, late)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()

    @property
    def is_ready(self) -> bool:
        """Whether it has a producer id and epoch that nobody has fenced, as far as it knows."""
        return self.producer_id >= 0

    def drop(self) -> None:
        """Begin anew, as an application that is started again: that aborts what is open."""
        self.producer_id = -1
        self._coordinator.node_id = -1

    async def initialize(self) -> bool:
        """Become the only producer of the transactional id; whether that came about."""
        response = await self._coordinator.ask(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout_ms)
        )
        if response is None:
            return False
        if response.error_code:
            if ErrorCode(response.error_code) not in TRY_AGAIN:
                raise Violation(f"{self.name}: InitProducerId is answered {ErrorCode(response.error_code).name}")
            await self._coordinator.lost()
            return False
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        self._added.clear()
        return True

    async def add(self, partitions: Iterable[TopicPartition]) -> bool:
        """Before partitions are written to: add them to the transaction, where its version asks for that. False if the
        client is to begin anew."""
        new = [tp for tp in partitions if tp not in self._added]
        if self.version >= 2 or not new:
            return True
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in partitions_by_topic(new).items()
            ],
        )
        if not await self._until_stored(self._coordinator, request, 3, _first_error):
            return False
        self._added.update(new)
        return True

    def batch(self, tp: TopicPartition, values: list[bytes]) -> bytes:
        """The next batch of the transaction for a partition."""
        sequence = self._sequences.get(tp, 0)
        self._sequences[tp] = sequence + len(values)
        return make_batch(values, self.producer_id, self.producer_epoch, sequence, is_transactional=True)

    def sender(self) -> Sender:
        """A sender of the transaction's batches."""
        version = PRODUCE_VERSION if self.version >= 2 else 11
        note = None if self._late is None else self._late.note
        return Sender(self.client, self.history, version, transactional_id=self.name, note=note)

    async def produce(self, tp: TopicPartition, values: list[bytes]) -> bool:
        """Write values in the transaction; whether they are stored. If not, the client is to begin anew."""
        if not await self.add([tp]):
            return False
        sender = self.sender()
        sender.append(tp, self.batch(tp, values), values)
        return await sender.flush()

    async def commit_offsets(self, group: Coordinated, offsets: dict[TopicPartition, int]) -> bool:
        """Commit offsets of a group in the transaction; whether they are stored."""
        if self.version < 2 and group.key not in self._added:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=group.key,
            )
            if not await self._until_stored(self._coordinator, add, 3, lambda found: found.error_code):
                return False
            self._added.add(group.key)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group.key,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=tp.topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset)],
                )
                for tp, offset in offsets.items()
            ],
        )
        return await self._until_stored(
            group, request, 5 if self.version >= 2 else 3, lambda found: found.topics[0].partitions[0].error_code
        )

    async def _until_stored(
        self, coordinator: Coordinated, request: Any, version: int, code_of: Callable[[Any], int]
    ) -> bool:
        while True:
            response = await coordinator.ask(request, version)
            if response is None:
                continue
            code = ErrorCode(code_of(response))
            if code == ErrorCode.NONE:
                return True
            self.history.refused(code.name)
            if code in GIVE_UP:
                return False
            if code not in TRY_AGAIN:
                raise Violation(f"{self.name}: {type(request).__name__} is answered {code.name}")
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                await coordinator.lost()
            else:
                await trio.sleep(0.05)

    async def end(self, *, commit: bool) -> Ending:
        """Commit or abort."""
        unanswered = False
        while True:
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            )
            response = await self._coordinator.ask(request, 5 if self.version >= 2 else 4)
            if response is None:
                unanswered = True
                continue
            code = ErrorCode(response.error_code)
            if code == ErrorCode.NONE:
                self._added.clear()
                if self.version >= 2:
                    self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
                    self._sequences.clear()
                return Ending.DONE
            if code in GIVE_UP:
                self.producer_id = -1
                return Ending.UNKNOWN if unanswered else Ending.REFUSED
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

    def __init__(self, number: int, client: ClusterClient, tp: TopicPartition, offsets_partitions: int) -> None:
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
        code, answer = fetched_offset(response)
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


def _first_error(response: AddPartitionsToTxnResponse) -> int:
    """The error of an answer of version 3; none is added if one cannot be."""
    codes = [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return next((code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)), 0)


def fetched_offset(response: OffsetFetchResponse) -> tuple[ErrorCode, OffsetFetchResponsePartitions | None]:
    """The answer to an OffsetFetch for one partition of one group: its error, and the part about the partition."""
    group = response.groups[0]
    answer = group.topics[0].partitions[0] if group.topics else None
    return ErrorCode(group.error_code or (answer.error_code if answer is not None else 0)), answer
