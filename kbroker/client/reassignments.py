"""Partitions that move to other brokers (KIP-455): begun, listed, cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ResponseError
from kbroker.types import TopicPartition
from kbroker.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that moves: all its replicas, and those of them that come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    client: Client, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, ResponseError | None]:
    """Give partitions other replicas, the preferred leader first, or cancel what is under way (None).

    Partition -> the error, None where it has begun: the new replicas copy what there is, and the old ones go then.
    """
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in wanted.items():
        entry = ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else [int(each) for each in replicas]
        )
        topics.setdefault(topic, []).append(entry)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(client.timeout * 1000),
        topics=[ReassignableTopic(name=topic, partitions=entries) for topic, entries in topics.items()],
    )

    def check(response: AlterPartitionReassignmentsResponse) -> None:
        refuse(response.error_code, "cluster", response.error_message)

    response = client.ask_controller(request, check)
    return {
        TopicPartition(topic.name, each.partition_index): None
        if not each.error_code
        else ResponseError(each.error_code, f"partition {topic.name}-{each.partition_index}", each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }


def list_reassignments(
    client: Client, partitions: Mapping[str, Sequence[int]] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The partitions that move now, of some topics (name -> partitions) or of all."""
    request = ListPartitionReassignmentsRequest(
        timeout_ms=int(client.timeout * 1000),
        topics=None
        if partitions is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(numbers))
            for name, numbers in partitions.items()
        ],
    )

    def check(response: ListPartitionReassignmentsResponse) -> None:
        refuse(response.error_code, "cluster", response.error_message)

    response = client.ask_controller(request, check)
    return {
        TopicPartition(topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }
