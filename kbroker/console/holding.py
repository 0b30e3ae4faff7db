"""Open transactions that hold up readers of committed records: in which partitions, since when, and whose they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.errors import known
from kbroker.client.transactions import ProducerState, describe_transaction, list_transactions, producers_of
from kbroker.types import TopicPartition

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")

_MAX_DESCRIBED: Final = 20


@dataclass(frozen=True, slots=True)
class Holder:
    """An open transaction in one partition, as the partition's leader knows it, and its coordinator.

    ``transactional_id`` is None where no coordinator tells of it: it hangs, or this user may not see it. ``since`` is
    in ms, None where nobody tells.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None = None
    since: int | None = None


def ask_holders(client: Client, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[Holder]]:
    """Partition -> the open transactions in it, the one that holds up its readers first.

    ``ResponseError`` if producers may not be seen.
    """
    producers = known(producers_of(client, partitions))
    found = {partition: _open_of(producers[partition]) for partition in partitions}
    owners = _owners(client, {each.producer_id for holders in found.values() for each in holders})
    return {
        partition: [
            Holder(
                each.producer_id,
                each.producer_epoch,
                each.start_offset,
                each.last_timestamp,
                *owners.get(each.producer_id, (None, None)),
            )
            for each in holders
        ]
        for partition, holders in found.items()
    }


def _open_of(producers: Iterable[ProducerState]) -> list[Holder]:
    holders = [
        Holder(each.producer_id, each.producer_epoch, each.start_offset, each.last_timestamp)
        for each in producers
        if each.start_offset is not None
    ]
    return sorted(holders, key=lambda holder: holder.start_offset)


def _owners(client: Client, producer_ids: Collection[int]) -> Mapping[int, tuple[str, int | None]]:
    """Producer id -> transactional id, and since when its transaction is open, of those that coordinators tell of."""
    if not producer_ids:
        return {}
    try:
        listed = list_transactions(client, states=OPEN_STATES)
    except ClientError:
        return {}
    owners: dict[int, tuple[str, int | None]] = {}
    for each in listed:
        if each.producer_id in producer_ids:
            since: int | None = None
            if len(owners) < _MAX_DESCRIBED:
                try:
                    since = describe_transaction(client, each.transactional_id).start_timestamp
                except ResponseError:
                    pass  # it has ended meanwhile
            owners[each.producer_id] = (each.transactional_id, since)
    return owners
