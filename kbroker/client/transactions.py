"""Administrators' questions about transactions, as values, and the end of one whose producer does not end it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import FIRST_BACKOFF, Client, refuse
from kbroker.client.errors import ApiNotServed, ClientError, ConnectionFailed, RequestTimedOut, ResponseError, known
from kbroker.client.leaders import ask_leaders
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.messages.described_transactions import (
    DescribedTransactionState,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicRequest,
)
from kbroker.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kbroker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTIONS_TOPIC: Final = "__transaction_state"

_TRANSACTION: Final = 1
"""The type of key that a transaction coordinator is found by."""
_LAST_PART: Final = 0.1
"""With less of the time left than this, brokers are not asked once more: those that do answer need some of it."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as ListTransactions tells it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Listed:
    """The transactional ids that brokers coordinate, by name. ``missing``: broker -> why its own may not be there."""

    found: tuple[TransactionListing, ...]
    missing: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. ``start_timestamp`` is ms since the epoch, None where no transaction has begun."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_timestamp: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition's leader knows it; ``start_offset`` is where its open transaction begins."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    start_offset: int | None


def list_transactions(
    client: Client, *, states: Sequence[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int | None = None
) -> Listed:
    """All transactional ids of all brokers; of some states or producers, or open for longer than a time, if asked.

    A broker that does not answer is asked again until the deadline: if it is dead, its transactions have another
    coordinator before long. ``ClientError`` if no broker answers.
    """
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
    if longer_than_ms is not None:
        request.duration_filter = longer_than_ms
    deadline = client.deadline()
    problems: dict[int, ClientError] = {}
    pause = FIRST_BACKOFF
    while True:
        # One after the other, those that have failed last: a broker that does not answer takes a part of the time.
        nodes = sorted(client.all_nodes(deadline), key=lambda node_id: (node_id in problems, node_id))
        problems = {}
        found: list[TransactionListing] = []
        for index, node_id in enumerate(nodes):
            now = time.monotonic()
            slice_end = now + max(deadline - now, 0) / (len(nodes) - index + 1)
            try:
                found.extend(_ask_listings(client, node_id, request, slice_end))
            except (ConnectionFailed, RequestTimedOut, ResponseError) as error:
                if isinstance(error, ResponseError) and not error.retriable:
                    raise
                problems[node_id] = error
        if not problems or time.monotonic() + max(pause, client.timeout * _LAST_PART) >= deadline:
            break
        pause = client.back_off(pause)
    if problems and len(problems) == len(nodes):
        raise next(iter(problems.values()))
    missing = {node_id: str(error) for node_id, error in problems.items()}
    missing |= _without_leader(client, nodes, deadline)
    return Listed(tuple(sorted(found, key=lambda each: each.transactional_id)), missing)


def _ask_listings(
    client: Client, node_id: int, request: ListTransactionsRequest, deadline: float
) -> Iterable[TransactionListing]:
    if request.duration_filter >= 0 and client.node(node_id, deadline).version_for(ListTransactionsRequest) < 1:
        raise ApiNotServed(f"broker {node_id} is too old to list transactions by their duration")
    return _listings(node_id, client.ask_together({node_id: request}, deadline)[node_id])


def _without_leader(client: Client, alive: Collection[int], deadline: float) -> dict[int, str]:
    """Broker -> why what it has coordinated has no coordinator: it is gone, and nobody else leads its partitions."""
    lost: dict[int, list[int]] = {}
    for topic in client.refresh([TRANSACTIONS_TOPIC], deadline):
        for each in topic.partitions:
            if each.leader_id not in alive:
                gone = [replica for replica in each.replica_nodes if replica not in alive]
                for broker in gone or each.replica_nodes:
                    lost.setdefault(broker, []).append(each.partition_index)
    return {
        broker: f"broker {broker} is not there: {len(numbers)} partitions of {TRANSACTIONS_TOPIC} have no leader"
        for broker, numbers in sorted(lost.items())
    }


def transactions_of_node(client: Client, node_id: int, states: Sequence[str] = ()) -> list[TransactionListing]:
    """The transactional ids that one broker coordinates, in one request."""
    request = ListTransactionsRequest(state_filters=list(states))
    return list(_listings(node_id, client.ask_node(node_id, request)))


def _listings(node_id: int, response: ListTransactionsResponse) -> Iterable[TransactionListing]:
    refuse(response.error_code, f"broker {node_id}")
    return (
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
        for each in response.transaction_states
    )


def describe_transaction(client: Client, transactional_id: str) -> TransactionDescription:
    """Describe a transactional id. ``ResponseError`` (TRANSACTIONAL_ID_NOT_FOUND) if nobody has used it."""

    def check(response: DescribeTransactionsResponse) -> None:
        refuse(response.transaction_states[0].error_code, f"transactional id {transactional_id}")

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    response = client.ask_coordinator(transactional_id, request, check, key_type=_TRANSACTION)
    return _description(response.transaction_states[0], client.coordinator(transactional_id, key_type=_TRANSACTION))


def describe_transactions_of_node(
    client: Client, node_id: int, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription]:
    """Transactional ids that one broker coordinates, in one request; one that fails is left out."""
    response = client.ask_node(node_id, DescribeTransactionsRequest(transactional_ids=list(transactional_ids)))
    return {
        state.transactional_id: _description(state, node_id)
        for state in response.transaction_states
        if not state.error_code
    }


def _description(state: DescribedTransactionState, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_timestamp=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
        ),
    )


def abort_transaction(client: Client, transactional_id: str) -> TransactionDescription:
    """Abort an id's open transaction, and fence its producer; what the id is afterwards.

    Done as a producer does that takes the id over (``Admin.fenceProducers``); its timeout stays.
    """
    before = describe_transaction(client, transactional_id)

    def check(response: InitProducerIdResponse) -> None:
        refuse(response.error_code, f"transactional id {transactional_id}")

    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=before.timeout_ms)
    client.ask_coordinator(transactional_id, request, check, key_type=_TRANSACTION)
    return describe_transaction(client, transactional_id)


def describe_producers(client: Client, partition: TopicPartition) -> list[ProducerState]:
    """The producers that a partition's leader knows; ``ResponseError`` where the partition cannot be asked."""
    return known(producers_of(client, [partition]))[partition]


def producers_of(
    client: Client, partitions: Iterable[TopicPartition], *, node_id: int | None = None
) -> dict[TopicPartition, list[ProducerState] | ResponseError]:
    """Partition -> the producers that its leader knows, by id, or why it cannot be asked.

    ``node_id``: ask this broker instead, which may be a follower of the partitions.
    """

    def make(wanted: Iterable[TopicPartition]) -> DescribeProducersRequest:
        topics: dict[str, list[int]] = {}
        for topic, index in wanted:
            topics.setdefault(topic, []).append(index)
        return DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]
        )

    def read(response: DescribeProducersResponse) -> Iterable[tuple[TopicPartition, int, list[ProducerState]]]:
        for topic in response.topics:
            for each in topic.partitions:
                states = [
                    ProducerState(
                        producer_id=state.producer_id,
                        producer_epoch=state.producer_epoch,
                        last_sequence=state.last_sequence,
                        last_timestamp=state.last_timestamp,
                        coordinator_epoch=state.coordinator_epoch,
                        start_offset=(state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None),
                    )
                    for state in each.active_producers
                ]
                states.sort(key=lambda state: state.producer_id)
                yield TopicPartition(topic.name, each.partition_index), each.error_code, states

    wanted = dict.fromkeys(partitions)
    if node_id is None:
        return ask_leaders(client, wanted, make, read)
    return {
        partition: ResponseError(code, f"partition {partition}") if code else states
        for partition, code, states in (read(client.ask_node(node_id, make(wanted))) if wanted else ())
    }


def abort_hanging(client: Client, partition: TopicPartition, start_offset: int) -> ProducerState:
    """End the transaction that begins at an offset of a partition there alone; whose it was.

    For one that hangs: its coordinator knows nothing of it any more (KIP-664). ``ResponseError``
    (INVALID_TXN_STATE) where none begins there.
    """
    for producer in describe_producers(client, partition):
        if producer.start_offset == start_offset:
            break
    else:
        problem = f"no open transaction begins at offset {start_offset}"
        raise ResponseError(ErrorCode.INVALID_TXN_STATE, f"partition {partition}", problem)
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
    )

    def read(response: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None]]:
        for result in response.markers:
            for topic in result.topics:
                for each in topic.partitions:
                    yield TopicPartition(topic.name, each.partition_index), each.error_code, None

    # Version 1 lets the marker bear the epoch of the transaction itself.
    written = ask_leaders(
        client, {partition: None}, lambda _: WriteTxnMarkersRequest(markers=[marker]), read, highest=1
    )
    error = written[partition]
    if error is not None:
        raise error
    return producer
