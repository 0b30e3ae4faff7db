"""Transactions that are open in partitions, and which of them hang: no coordinator will end them there (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.client.cluster import Client
from kbroker.client.errors import ClientError, ResponseError
from kbroker.client.transactions import (
    ProducerState,
    TransactionDescription,
    describe_transaction,
    describe_transactions_of_node,
    list_transactions,
    producers_of,
)
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition from ``start_offset`` on, as a replica of the partition knows it."""

    partition: TopicPartition
    start_offset: int
    producer: ProducerState


def open_in(producers: Mapping[TopicPartition, Iterable[ProducerState] | ResponseError]) -> list[OpenTransaction]:
    """The open ones of what :func:`producers_of` gives, by partition and offset; partitions with an error have none."""
    return sorted(
        OpenTransaction(partition, state.start_offset, state)
        for partition, states in producers.items()
        if not isinstance(states, ResponseError)
        for state in states
        if state.start_offset is not None
    )


def descriptions_of(
    client: Client, opened: Iterable[OpenTransaction]
) -> tuple[dict[OpenTransaction, TransactionDescription], Mapping[int, str]]:
    """The open transactions that their coordinators will end, each as its coordinator tells it.

    That is so if a transactional id has the producer's id, and its transaction has the partition. The others hang, or
    this user may not see them, or have a coordinator that does not answer: the second result, as in ``Listed.missing``.
    """
    wanted = list(opened)
    if not wanted:
        return {}, {}
    listed = list_transactions(client, producer_ids=sorted({each.producer.producer_id for each in wanted}))
    names: dict[int, list[str]] = {}
    for listing in listed.found:
        names.setdefault(listing.coordinator, []).append(listing.transactional_id)
    described: dict[int, TransactionDescription] = {}
    for coordinator, ids in names.items():
        told = describe_transactions_of_node(client, coordinator, ids)
        for name in ids:
            found = told.get(name) or _described_alone(client, name)
            if found is not None:
                described[found.producer_id] = found
    return {
        each: found
        for each in wanted
        if (found := described.get(each.producer.producer_id)) is not None and each.partition in found.partitions
    }, listed.missing


def _described_alone(client: Client, transactional_id: str) -> TransactionDescription | None:
    """A transactional id by its coordinator, which may be another by now; None if nobody knows it any more."""
    try:
        return describe_transaction(client, transactional_id)
    except ResponseError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise


def hanging_among(client: Client, opened: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those of some open transactions that hang, or that this user may not see.

    The leaders are asked once more after the coordinators: a transaction that has ended meanwhile does not hang.
    ``ClientError`` if a coordinator does not answer: it may know them.
    """
    described, missing = descriptions_of(client, opened)
    alone = [each for each in opened if each not in described]
    if alone and missing:
        raise ClientError(f"not all coordinators can be asked: {'; '.join(missing.values())}")
    still = {
        (each.partition, each.start_offset, each.producer.producer_id)
        for each in open_in(producers_of(client, sorted({each.partition for each in alone})))
    }
    return [each for each in alone if (each.partition, each.start_offset, each.producer.producer_id) in still]
