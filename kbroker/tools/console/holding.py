"""Open transactions that hold up readers of committed records: in which partitions, since when, and whose they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kbroker.client import Client, ClientError
from kbroker.client.errors import known
from kbroker.client.open_transactions import descriptions_of, open_in
from kbroker.client.transactions import producers_of
from kbroker.types import TopicPartition


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
    opened = open_in(known(producers_of(client, partitions)))
    try:
        described, _ = descriptions_of(client, opened)
    except ClientError:
        described = {}
    found: dict[TopicPartition, list[Holder]] = {partition: [] for partition in partitions}
    for each in opened:
        owner = described.get(each)
        found[each.partition].append(
            Holder(
                each.producer.producer_id,
                each.producer.producer_epoch,
                each.start_offset,
                each.producer.last_timestamp,
                None if owner is None else owner.transactional_id,
                None if owner is None else owner.start_timestamp,
            )
        )
    return found
