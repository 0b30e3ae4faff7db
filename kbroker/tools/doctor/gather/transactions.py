"""Transactions are looked at from both sides: coordinators', and leaders' of partitions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client
from kbroker.client.errors import ResponseError
from kbroker.client.open_transactions import OPEN_STATES, hanging_among, open_in
from kbroker.client.transactions import describe_transaction, list_transactions, producers_of
from kbroker.tools.doctor.facts import OpenTransaction, TransactionFacts
from kbroker.types import TopicPartition

MOST_TRANSACTIONS: Final = 300


@dataclass(frozen=True, slots=True)
class Transactions:
    """Open transactions: ``known`` to coordinators, and ``open`` in partitions."""

    known: tuple[TransactionFacts, ...]
    open: tuple[OpenTransaction, ...]


def look_at_transactions(client: Client, partitions: Sequence[TopicPartition], *, is_whole: bool) -> Transactions:
    """Ask the leaders, then the coordinators, then the leaders again for what no coordinator knows.

    ``is_whole``: whether every broker is asked; if not, a coordinator that was not may know a transaction.
    """
    opened = open_in(producers_of(client, partitions))
    listed = list_transactions(client, states=OPEN_STATES)
    hanging = set(hanging_among(client, opened)) if is_whole and not listed.missing else set()
    known = []
    for each in listed.found[:MOST_TRANSACTIONS]:
        try:
            found = describe_transaction(client, each.transactional_id)
        except ResponseError:
            continue  # it has just ended, or is not for us
        if found.state in OPEN_STATES:
            known.append(
                TransactionFacts(
                    each.transactional_id, found.producer_id, found.state, found.timeout_ms, found.start_timestamp
                )
            )
    told = tuple(
        OpenTransaction(
            each.partition,
            each.producer.producer_id,
            each.start_offset,
            each.producer.last_timestamp,
            each not in hanging,
        )
        for each in opened
    )
    return Transactions(tuple(known), told)
