"""Requests of transactions to other brokers: markers for the partitions that they lead, and their coordinators.

Up to ``MOST_UNDER_WAY`` requests of a kind are under way to a broker. An answer may take as long as replication or the
end of another transaction, and later questions must not wait for it. Questions that arrive meanwhile share the next
request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kbroker.cores.transactions.transaction import TransactionMarker, partitions_by_topic
from kbroker.errors import ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer, PoolFor
from kbroker.types import TopicPartition
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
    from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    from kbroker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

logger = logging.getLogger(__name__)

MOST_UNDER_WAY = 4
"""Upper bound of the requests to one broker, for questions of one kind."""

MOST_PARTITIONS = 10_000
"""A request has no further question once it is about so many. More gather where a broker stands still, and one about
100,000 is refused."""

_ABORTABLE = {ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE}
"""Clients are not told that one broker has no permission at another (``AddPartitionsToTxnManager``): a producer aborts
its transaction for the error that they get."""

PartitionErrors = dict[TopicPartition, ErrorCode]


class Question(Protocol):
    """A question to another broker; several of them may share a request."""

    @property
    def partitions(self) -> Sequence[TopicPartition]: ...

    @property
    def on_done(self) -> Callable[[PartitionErrors], None]: ...

    @property
    def identity(self) -> Any:
        """The key that assigns an answer in the response to this question."""

    @property
    def subject(self) -> Any:
        """Two questions of one identity may share a request if their subjects are equal; None: they never may."""


Q = TypeVar("Q", bound=Question)


class MarkerQuestion(NamedTuple):
    """Write a marker into partitions."""

    marker: TransactionMarker
    partitions: Sequence[TopicPartition]
    on_done: Callable[[PartitionErrors], None]

    @property
    def identity(self) -> int:
        return self.marker.producer_id

    @property
    def subject(self) -> None:
        return None


class MembershipQuestion(NamedTuple):
    """Asks whether these partitions are in the transaction, or has them added (``add``)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    add: bool
    on_done: Callable[[PartitionErrors], None]

    @property
    def identity(self) -> str:
        return self.transactional_id

    @property
    def subject(self) -> tuple[ProducerIdAndEpoch, bool]:
        return self.producer, self.add


class _Kind(NamedTuple, Generic[Q]):
    """The request of one kind of question: how questions are encoded and answers read."""

    name: str
    min_version: int
    request: Callable[[Sequence[Q]], Any]
    """Imports the API's messages: a single node never sends one."""
    answers: Callable[[Any], Mapping[tuple[Any, TopicPartition], int]]
    unreachable: ErrorCode
    """The error that a question gets if no answer arrives."""


class _Line(Generic[Q]):
    """The questions that wait for one broker."""

    __slots__ = ("queue", "tasks")

    def __init__(self) -> None:
        self.queue: list[Q] = []
        self.tasks = 0
        """Tasks that send them."""


class BrokerRequests(Generic[Q]):
    """Asks questions of one kind."""

    def __init__(self, kind: _Kind[Q], pool_for: PoolFor, start_soon: Callable[..., None]) -> None:
        self._kind = kind
        self._peers = pool_for(kind.name)
        self.give_up = self._peers.give_up
        self._start_soon = start_soon
        self._lines: dict[int, _Line[Q]] = {}
        self._refused_by: dict[int, ErrorCode] = {}
        """Brokers that refused the last request as a whole, and why."""

    def ask(self, broker_id: int, question: Q) -> None:
        """Ask a broker; the question's ``on_done`` is called with an error for each partition."""
        line = self._lines.get(broker_id)
        if line is None:
            line = self._lines[broker_id] = _Line()
        line.queue.append(question)
        if line.tasks < MOST_UNDER_WAY:
            line.tasks += 1
            self._start_soon(self._work_off, broker_id, line)

    async def _work_off(self, broker_id: int, line: _Line[Q]) -> None:
        try:
            while line.queue:
                questions = _compatible(line.queue)
                errors = await self._exchange(broker_id, questions)
                for question in questions:
                    self._answer(question, errors)
        finally:
            line.tasks -= 1
            if not line.tasks:
                del self._lines[broker_id]

    def _answer(self, question: Q, errors: Mapping[tuple[Any, TopicPartition], int]) -> None:
        found = {
            each: ErrorCode.of(errors.get((question.identity, each), self._kind.unreachable))
            for each in question.partitions
        }
        try:
            question.on_done(found)
        except Exception:
            logger.exception("%s: the answer could not be dealt with", self._kind.name)

    async def _exchange(self, broker_id: int, questions: Sequence[Q]) -> Mapping[tuple[Any, TopicPartition], int]:
        kind = self._kind
        try:
            response = await self._peers.ask(broker_id, kind.request(questions), least_version=kind.min_version)
        except NoAnswer:
            return {}
        answers = kind.answers(response)
        code = _refusal(response, answers)
        self._log_refusal(broker_id, code)
        if code and not answers:
            told = _ABORTABLE.get(code, code)
            return {(each.identity, partition): told for each in questions for partition in each.partitions}
        return answers

    def _log_refusal(self, broker_id: int, code: ErrorCode) -> None:
        """Log that a broker refuses requests as a whole, once until it takes one or gives another reason."""
        if not code:
            self._refused_by.pop(broker_id, None)
        elif self._refused_by.get(broker_id) is not code:
            self._refused_by[broker_id] = code
            logger.error("%s: broker %d refuses the requests of this broker: %s", self._kind.name, broker_id, code.name)


def _refusal(response: Any, answers: Mapping[tuple[Any, TopicPartition], int]) -> ErrorCode:
    """The error of the request as a whole, NONE if there is none; WriteTxnMarkers says it of each partition."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    if not code and ErrorCode.CLUSTER_AUTHORIZATION_FAILED in answers.values():
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.of(code)


def _compatible(queue: list[Q]) -> list[Q]:
    """Remove from the queue and return the questions that may share the next request."""
    taken: list[Q] = []
    subjects: dict[Any, Any] = {}
    left = []
    room = MOST_PARTITIONS
    for question in queue:
        subject = question.subject
        fits = subject is not None and subjects.get(question.identity) == subject
        if room > 0 and (fits or question.identity not in subjects):
            subjects[question.identity] = subject
            taken.append(question)
            room -= len(question.partitions)
        else:
            left.append(question)
    queue[:] = left
    return taken


def _markers_request(questions: Sequence[MarkerQuestion]) -> WriteTxnMarkersRequest:
    from kbroker.wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

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
    from kbroker.wire.messages.transactions import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    partitions: dict[str, dict[TopicPartition, None]] = {}
    for question in questions:
        partitions.setdefault(question.transactional_id, {}).update(dict.fromkeys(question.partitions))
    first = {question.transactional_id: question for question in reversed(questions)}
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.producer_epoch,
                verify_only=not question.add,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in partitions_by_topic(partitions[question.transactional_id]).items()
                ],
            )
            for question in reversed(first.values())
        ]
    )


def _membership_answers(response: AddPartitionsToTxnResponse) -> dict[tuple[Any, TopicPartition], int]:
    if response.error_code:
        return {}
    return {
        (result.transactional_id, TopicPartition(topic.name, each.partition_index)): each.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


MARKERS = _Kind("transaction-markers", 1, _markers_request, _markers_answers, ErrorCode.NOT_LEADER_OR_FOLLOWER)
MEMBERSHIP = _Kind("add-partitions", 4, _membership_request, _membership_answers, ErrorCode.NETWORK_EXCEPTION)
