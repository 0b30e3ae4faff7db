"""Elections that are asked for (ElectLeaders, KIP-460), and those by which the controller restores order itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.broker_changes import (
    Entry,
    automatic_election,
    change_rules,
    every_partition,
    may_elect,
)
from kbroker.raft_metadata.controller.partition_changes import Election, partition_change
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import NO_LEADER, TopicImage
from kbroker.types import TopicPartition
from kbroker.wire.records.metadata import PartitionChangeRecord

MAX_ELECTIONS_PER_IMBALANCE = 1_000
"""The most elections in one batch of ``balance_leaders`` or ``elect_missing_leaders``
(``QuorumController.DEFAULT_MAX_ELECTIONS_PER_IMBALANCE``)."""


def elect_leaders(
    view: ControllerView, partitions: Sequence[TopicPartition], *, unclean: bool
) -> ControllerResult[dict[TopicPartition, ApiError | None]]:
    """Give each partition's leadership to its preferred replica; an error or None for each.

    ``unclean``: give a leaderless partition to any active replica, even one that lacks records.
    """
    records: list[PartitionChangeRecord] = []
    results: dict[TopicPartition, ApiError | None] = {}
    for entry in dict.fromkeys(partitions):
        try:
            records.append(_elect(view, entry, unclean=unclean))
            results[entry] = None
        except ApiError as error:
            results[entry] = error.without_traceback()
    return ControllerResult(results, records)


def _elect(view: ControllerView, entry: TopicPartition, *, unclean: bool) -> PartitionChangeRecord:
    topic = view.image.topics.by_name.get(entry.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {entry.topic}")
    partition = topic.partitions.get(entry.partition)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {entry}")
    led = partition.leader != NO_LEADER if unclean else partition.leader == partition.preferred_leader
    if led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    election = Election.AT_ONCE if unclean else Election.PREFERRED
    record = partition_change(topic.id, entry.partition, partition, change_rules(view, topic), election=election)
    if record is not None:
        return record
    if unclean:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")


def balance_leaders(view: ControllerView) -> ControllerResult[bool]:
    """Give partitions back to their preferred leaders, one batch at a time; whether there may be more to do
    (``maybeBalancePartitionLeaders``)."""
    # The second is for the time while a node is away: of thousands of partitions nothing has to be decided.
    misplaced = (
        entry
        for entry in every_partition(view)
        if entry[2].leader != entry[2].preferred_leader and view.is_active(entry[2].preferred_leader)
    )
    return _elect_some(view, misplaced, lambda topic: Election.PREFERRED)


def elect_missing_leaders(view: ControllerView) -> ControllerResult[bool]:
    """Elect leaders of leaderless partitions that may have one by now, one batch at a time; whether there may be more
    to do (``maybeElectUncleanLeaders``).

    Their topic allows unclean ones, or a controller has ended before all elections with a broker were committed.
    """
    leaderless = (
        entry
        for entry in every_partition(view)
        if entry[2].leader == NO_LEADER and any(map(view.is_active, entry[2].replicas))
    )
    return _elect_some(
        view, filter(may_elect(view, view.is_active), leaderless), lambda topic: automatic_election(view, topic.name)
    )


def _elect_some(
    view: ControllerView, partitions: Iterable[Entry], election_of: Callable[[TopicImage], Election]
) -> ControllerResult[bool]:
    records: list[PartitionChangeRecord] = []
    topic_before: TopicImage | None = None
    for topic, partition_id, partition in partitions:
        if topic is not topic_before:
            topic_before = topic
            rules, election = change_rules(view, topic), election_of(topic)
        record = partition_change(topic.id, partition_id, partition, rules, election=election)
        if record is not None:
            records.append(record)
            if len(records) >= MAX_ELECTIONS_PER_IMBALANCE:
                break
    return ControllerResult(len(records) >= MAX_ELECTIONS_PER_IMBALANCE, records)
