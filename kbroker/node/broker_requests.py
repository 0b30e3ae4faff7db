"""Questions of transactions to other brokers: markers for the partitions that they lead, and the coordinators there.

For each broker a connection and a task that is there while there is something to ask. What comes while a request is
under way goes into the next one, all together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from kbroker.errors import ErrorCode
from kbroker.node.peer import Peer, UnsupportedByPeer
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.transactions.marker import TransactionMarker
from kbroker.transactions.records import partitions_by_topic
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError
from kbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kbroker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.env import Env

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
"""How long a connection is kept that nothing is asked on."""

PartitionErrors = dict[TopicPartition, ErrorCode]


class Question(Protocol):
    """Something to be asked of another broker."""

    @property
    def partitions(self) -> Sequence[TopicPartition]: ...

    @property
    def on_done(self) -> Callable[[PartitionErrors], None]: ...

    @property
    def identity(self) -> Any:
        """By which the answer is told from others; a request has each but once."""
        ...


Q = TypeVar("Q", bound=Question)


class MarkerQuestion(NamedTuple):
    """Write a marker into partitions."""

    marker: TransactionMarker
    partitions: Sequence[TopicPartition]
    on_done: Callable[[PartitionErrors], None]

    @property
    def identity(self) -> int:
        return self.marker.producer_id


class MembershipQuestion(NamedTuple):
    """Are these partitions in the transaction? Or: ``add`` them."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    add: bool
    on_done: Callable[[PartitionErrors], None]

    @property
    def identity(self) -> str:
        return self.transactional_id


class _Kind(NamedTuple, Generic[Q]):
    """How questions of one kind are asked."""

    name: str
    request_class: type[Any]
    min_version: int
    request: Callable[[Sequence[Q]], Any]
    answers: Callable[[Any], Mapping[tuple[Any, TopicPartition], int]]
    unreachable: ErrorCode
    """What is told where there is no answer."""


class BrokerRequests(Generic[Q]):
    """Asks questions of one kind. ``address`` gives where a broker is, None if that is not known."""

    def __init__(
        self,
        kind: _Kind[Q],
        env: Env,
        config: BrokerConfig,
        start_soon: Callable[..., None],
        address: Callable[[int], tuple[str, int] | None],
    ) -> None:
        self._kind = kind
        self._env = env
        self._client_id = f"broker-{config.node_id}-{kind.name}"
        self._timeout = config.request_timeout_ms / 1000
        self._start_soon = start_soon
        self._address = address
        self._queues: dict[int, list[Q]] = {}
        self._wakes: dict[int, trio.Event] = {}
        self._under_way: dict[int, trio.CancelScope] = {}

    def ask(self, broker_id: int, question: Q) -> None:
        """Ask a broker; the question's ``on_done`` is called with an error for each partition."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.append(question)
            self._wakes[broker_id].set()
            return
        self._queues[broker_id] = [question]
        self._wakes[broker_id] = trio.Event()
        self._start_soon(self._work_off, broker_id)

    def give_up(self, broker_id: int) -> None:
        """A broker is fenced, or another process now: whoever waits for its answer is told that there is none.

        One that stands still or is cut off does not refuse requests, and others may lead its partitions long before
        ``request.timeout.ms`` is over.
        """
        scope = self._under_way.get(broker_id)
        if scope is not None:
            scope.cancel()

    async def _work_off(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        peer: Peer | None = None
        try:
            while queue:
                address = self._address(broker_id)
                if peer is not None and (peer.host, peer.port) != address:
                    peer.close()
                    peer = None
                if peer is None and address is not None:
                    peer = Peer(self._env.network, *address, client_id=self._client_id)
                questions = _distinct(queue)
                errors = await self._exchange(broker_id, peer, questions)
                for question in questions:
                    self._answer(question, errors)
                if not queue:
                    self._wakes[broker_id] = trio.Event()
                    with trio.move_on_after(IDLE_SECONDS):
                        await self._wakes[broker_id].wait()
        finally:
            del self._queues[broker_id], self._wakes[broker_id]
            if peer is not None:
                peer.close()

    def _answer(self, question: Q, errors: Mapping[tuple[Any, TopicPartition], int]) -> None:
        found = {
            each: ErrorCode.of(errors.get((question.identity, each), self._kind.unreachable))
            for each in question.partitions
        }
        try:
            question.on_done(found)
        except Exception:
            logger.exception("%s: the answer could not be dealt with", self._kind.name)

    async def _exchange(
        self, broker_id: int, peer: Peer | None, questions: Sequence[Q]
    ) -> Mapping[tuple[Any, TopicPartition], int]:
        kind = self._kind
        if peer is None:
            await trio.lowlevel.checkpoint()
            return {}

        def make(version: int) -> Any:
            if version < kind.min_version:
                raise UnsupportedByPeer(f"version {version} is too old")
            return kind.request(questions)

        reason: object = "no answer in time, or the broker was fenced"
        try:
            with trio.move_on_after(self._timeout) as self._under_way[broker_id]:
                response, _ = await peer.ask_versioned(kind.request_class, make)
                return kind.answers(response)
        except (OSError, WireError, UnsupportedByPeer) as error:
            reason = error
        finally:
            del self._under_way[broker_id]
        logger.info("%s: broker at %s:%d: %s", kind.name, peer.host, peer.port, reason)
        return {}


def _distinct(queue: list[Q]) -> list[Q]:
    """Take from the queue what can be asked together."""
    taken: list[Q] = []
    identities = set()
    left = []
    for question in queue:
        if question.identity in identities:
            left.append(question)
        else:
            identities.add(question.identity)
            taken.append(question)
    queue[:] = left
    return taken


def _markers_request(questions: Sequence[MarkerQuestion]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=question.marker.producer_id,
                producer_epoch=question.marker.producer_epoch,
                transaction_result=question.marker.commit,
                coordinator_epoch=question.marker.coordinator_epoch,
                transaction_version=question.marker.transaction_version,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in partitions_by_topic(question.partitions).items()
                ],
            )
            for question in questions
        ]
    )


def _markers_answers(response: WriteTxnMarkersResponse) -> dict[tuple[Any, TopicPartition], int]:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def _membership_request(questions: Sequence[MembershipQuestion]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.producer_epoch,
                verify_only=not question.add,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in partitions_by_topic(question.partitions).items()
                ],
            )
            for question in questions
        ]
    )


def _membership_answers(response: AddPartitionsToTxnResponse) -> dict[tuple[Any, TopicPartition], int]:
    return {
        (result.transactional_id, TopicPartition(topic.name, each.partition_index)): response.error_code
        or each.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


MARKERS = _Kind(
    "transaction-markers",
    WriteTxnMarkersRequest,
    1,
    _markers_request,
    _markers_answers,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
MEMBERSHIP = _Kind(
    "add-partitions",
    AddPartitionsToTxnRequest,
    4,
    _membership_request,
    _membership_answers,
    ErrorCode.NETWORK_EXCEPTION,
)
