"""Transactions are looked at from both sides: coordinators', and leaders' of partitions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import ResponseError
from kbroker.client.transactions import describe_transaction, list_transactions, producers_of
from kbroker.doctor.facts import OpenTransaction, TransactionFacts
from kbroker.types import TopicPartition

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
MOST_TRANSACTIONS: Final = 300


@dataclass(frozen=True, slots=True)
class Transactions:
    """Open transactions: ``known`` to coordinators, and ``open`` in partitions."""

    known: tuple[TransactionFacts, ...]
    open: tuple[OpenTransaction, ...]


def look_at_transactions(client: Client, partitions: Sequence[TopicPartition], *, is_whole: bool) -> Transactions:
    """Ask the leaders, then the coordinators, then the leaders again for what no coordinator knows.

    In this order a transaction that begins or ends meanwhile is not taken for one that hangs. ``is_whole``: whether
    every broker is asked; if not, a coordinator that was not may know it.
    """
    before = _open_in(client, partitions)
    listed = list_transactions(client, states=_OPEN)
    producers = {each.producer_id for each in listed}
    alone = [key for key in before if is_whole and key[1] not in producers]
    still = _open_in(client, sorted({partition for partition, _ in alone}))
    hanging = {key for key in alone if still.get(key, (-1, 0))[0] == before[key][0]}
    known = []
    for each in listed[:MOST_TRANSACTIONS]:
        try:
            found = describe_transaction(client, each.transactional_id)
        except ResponseError:
            continue  # it has just ended, or is not for us
        if found.state in _OPEN:
            known.append(
                TransactionFacts(
                    each.transactional_id, found.producer_id, found.state, found.timeout_ms, found.start_timestamp
                )
            )
    opened = tuple(
        OpenTransaction(partition, producer, start, last, (partition, producer) not in hanging)
        for (partition, producer), (start, last) in sorted(before.items())
    )
    return Transactions(tuple(known), opened)


def _open_in(client: Client, partitions: Sequence[TopicPartition]) -> dict[tuple[TopicPartition, int], tuple[int, int]]:
    """(partition, producer id) -> where its open transaction begins, and when it wrote last."""
    return {
        (partition, state.producer_id): (state.start_offset, state.last_timestamp)
        for partition, states in producers_of(client, partitions).items()
        if not isinstance(states, ResponseError)
        for state in states
        if state.start_offset is not None
    }
