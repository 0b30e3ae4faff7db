"""Partitions that move to other brokers (KIP-455): planned, begun, listed, cancelled; leaders elected (KIP-460)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ResponseError
from kbroker.errors import ErrorCode
from kbroker.types import TopicPartition
from kbroker.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
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


_MOST: Final = 100_000
"""Numbers that a text may name."""


class CannotPlan(ValueError):
    """There is no such plan; the text says why."""


def parse_numbers(text: str, what: str) -> list[int]:
    """``0,2,5-7`` as numbers in order, each once. ``CannotPlan`` for another form."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 10) or (
            dash and not (last.isascii() and last.isdigit() and len(last) < 10)
        ):
            raise CannotPlan(f"{what} are numbers such as 0,2,5-7")
        begin, end = int(first), int(last) if dash else int(first)
        if end < begin or end - begin > _MOST:
            raise CannotPlan(f"{what}: {part[:30]} is no range")
        found.update(range(begin, end + 1))
        if len(found) > _MOST:
            raise CannotPlan(f"{what}: these are more than {_MOST:,}")
    return sorted(found)


def replicas_to_be(
    client: Client, replicas: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of partitions once all that moves has moved: while one does, the metadata have old and new ones."""
    moving = list_reassignments(client)
    return {
        partition: tuple(each for each in now if partition not in moving or each not in moving[partition].removing)
        for partition, now in replicas.items()
    }


def plan_moves(
    replicas: Mapping[int, Sequence[int]], racks: Mapping[int, str | None], factor: int
) -> dict[int, tuple[int, ...]]:
    """Partition -> its replicas on the brokers of ``racks``, the preferred leader first.

    Each partition gets ``factor`` replicas, each broker about as many, other racks first, and as many first places. A
    replica stays where it is unless its broker is not among them or has more than its share.
    """
    if factor < 1:
        raise CannotPlan("a partition has at least one replica")
    if factor > len(racks):
        raise CannotPlan(f"{factor} replicas need as many brokers, and {len(racks)} are chosen")
    share = -(-len(replicas) * factor // len(racks))
    held: Counter[int] = Counter(dict.fromkeys(racks, 0))
    kept: dict[int, list[int]] = {}
    for partition, current in sorted(replicas.items()):
        stay: list[int] = []
        for broker in current:
            if broker in racks and held[broker] < share and len(stay) < factor:
                stay.append(broker)
                held[broker] += 1
        kept[partition] = stay
    for chosen in kept.values():
        while len(chosen) < factor:
            used = {racks[broker] for broker in chosen if racks[broker] is not None}
            free = (broker for broker in racks if broker not in chosen)
            best = min(free, key=lambda broker: (held[broker] >= share, racks[broker] in used, held[broker], broker))
            chosen.append(best)
            held[best] += 1
    leaders = -(-len(replicas) // len(racks))
    first: Counter[int] = Counter(dict.fromkeys(racks, 0))
    for partition, chosen in kept.items():
        old = replicas[partition][0] if replicas[partition] else None
        if chosen[0] != old or first[chosen[0]] >= leaders:
            best = min(chosen, key=lambda broker: (first[broker], broker))
            chosen.remove(best)
            chosen.insert(0, best)
        first[chosen[0]] += 1
    return {partition: tuple(chosen) for partition, chosen in kept.items()}


def elect_leaders(
    client: Client, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
) -> dict[TopicPartition, ResponseError | None]:
    """Elect the preferred leaders of partitions (None: of all), or with ``unclean`` any replica where nobody leads.

    Partition -> the error, None where a leader was elected. Partitions that need no election are left out.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    request = ElectLeadersRequest(
        election_type=int(unclean),
        topic_partitions=None
        if partitions is None
        else [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
        timeout_ms=int(client.timeout * 1000),
    )

    def check(response: ElectLeadersResponse) -> None:
        refuse(response.error_code, "cluster")

    response = client.ask_controller(request, check)
    return {
        TopicPartition(topic.topic, each.partition_id): ResponseError(
            each.error_code, f"partition {topic.topic}-{each.partition_id}", each.error_message
        )
        if each.error_code
        else None
        for topic in response.replica_election_results
        for each in topic.partition_result
        if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
    }
