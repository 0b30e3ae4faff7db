"""Moving partitions to other brokers: AlterPartitionReassignments (KIP-455).

A reassignment adds the new replicas, waits until they are in the ISR, and takes the old ones out. The last step is in
``partition_changes``, where the ISR grows. A reassignment that needs no new replica (another order, fewer replicas) is
complete at once. Rules: Kafka's ``PartitionReassignmentReplicas`` and ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.assignments import validate_assignment
from kbroker.raft_metadata.controller.broker_changes import automatic_election, change_rules
from kbroker.raft_metadata.controller.partition_changes import Election, partition_change
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import PartitionImage, TopicImage
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import PartitionChangeRecord


class Reassignment(NamedTuple):
    """The replicas that a partition is to have; None cancels the reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


def alter_partition_reassignments(
    view: ControllerView, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
) -> ControllerResult[list[ApiError | None]]:
    """Begin or cancel reassignments; an error or None for each, in order."""
    records: list[PartitionChangeRecord] = []
    errors: list[ApiError | None] = []
    for entry in wanted:
        try:
            record = _alter(view, entry, allow_replication_factor_change)
        except ApiError as error:
            errors.append(error.without_traceback())
            continue
        errors.append(None)
        if record is not None:
            records.append(record)
    return ControllerResult(errors, list(records))


def _alter(view: ControllerView, wanted: Reassignment, allow_factor_change: bool) -> PartitionChangeRecord | None:
    topic = view.image.topics.by_name.get(wanted.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
    old = topic.partitions.get(wanted.partition)
    if old is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.partition}."
        )
    if wanted.replicas is None:
        return _cancel(view, topic, wanted.partition, old)
    validate_assignment(view, wanted.replicas)
    if not allow_factor_change:
        _check_same_factor(old, wanted.replicas)
    target = set(wanted.replicas)
    removing = sorted(set(old.replicas) - target)
    # A replica that an earlier reassignment was adding still has to come in sync. One that the new reassignment does
    # not name is only removed. (Apache Kafka 4.3 leaves it in both lists, and such a reassignment never ends.)
    adding = sorted((target - set(old.replicas)) | (target & set(old.adding_replicas)))
    return partition_change(
        topic.id,
        wanted.partition,
        old,
        change_rules(view, topic),
        replicas=[*wanted.replicas, *removing],
        removing=removing,
        adding=adding,
    )


def _cancel(
    view: ControllerView, topic: TopicImage, partition_id: int, old: PartitionImage
) -> PartitionChangeRecord | None:
    """Go back to the replicas from before the reassignment: without those it adds, with those it would remove."""
    if not (old.adding_replicas or old.removing_replicas):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [broker for broker in old.replicas if broker not in old.adding_replicas]
    isr = [broker for broker in old.isr if broker not in old.adding_replicas]
    if not replicas:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    election = automatic_election(view, topic.name)
    if not isr and election is not Election.UNCLEAN:  # as in Apache Kafka, also with an eligible leader left
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{partition_id} because it would require an "
            "unclean leader election.",
        )
    return partition_change(
        topic.id,
        partition_id,
        old,
        change_rules(view, topic),
        isr=isr,
        replicas=replicas,
        adding=(),
        removing=(),
        election=election,
    )


def _check_same_factor(old: PartitionImage, target: Sequence[int]) -> None:
    current = len((set(old.replicas) | set(old.adding_replicas)) - set(old.removing_replicas))
    if current != len(target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {current} to {len(target)}"
        )
