"""Partitions of a topic that move to other brokers now, and how far they are."""

from __future__ import annotations

from kbroker.client import Client, ClientError
from kbroker.client.reassignments import Reassignment, list_reassignments
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import TopicDescription
from kbroker.tools.console.sizes import Sizes
from kbroker.types import TopicPartition


def moving_partitions(client: Client, topic: TopicDescription) -> dict[int, Reassignment]:
    """Partition -> the move that is under way; empty where that may not be seen."""
    try:
        found = list_reassignments(client, {topic.name: [entry.partition for entry in topic.partitions]})
    except ClientError:
        return {}
    return {partition.partition: each for partition, each in found.items()}


def show_move(move: Reassignment | None, partition: TopicPartition, sizes: Sizes) -> Json:
    """A move that is under way, with the bytes that each new replica has; None without one."""
    if move is None:
        return None
    on_brokers = {} if sizes.of is None else sizes.of.get(partition, {})
    return {
        "adding": [{"broker": broker, "size": on_brokers.get(broker)} for broker in move.adding],
        "removing": list(move.removing),
    }
