"""Moving partitions to other brokers: AlterPartitionReassignments (KIP-455).

A reassignment adds the new replicas, waits until they are in the ISR, and takes the old ones out: the last step is in
``partition_changes``, where the ISR grows. One that needs no new replica (another order, fewer replicas) is complete at
once. Rules: Kafka's ``PartitionReassignmentReplicas`` and ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.partition_changes import Election, partition_change
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import PartitionImage, TopicImage
from kbroker.wire.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller


class Reassignment(NamedTuple):
    """A wish: the replicas that a partition is to have, or None to cancel the reassignment that is going on."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentControl:
    """Decides on reassignments."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def alter(
        self, wanted: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> ControllerResult[list[ApiError | None]]:
        """Begin or cancel reassignments; an error or None for each, in order."""
        records: list[PartitionChangeRecord] = []
        errors: list[ApiError | None] = []
        for entry in wanted:
            try:
                record = self._alter(entry, allow_replication_factor_change)
            except ApiError as error:
                errors.append(error)
                continue
            errors.append(None)
            if record is not None:
                records.append(record)
        return ControllerResult(errors, list(records))

    def _alter(self, wanted: Reassignment, allow_factor_change: bool) -> PartitionChangeRecord | None:
        topic = self._controller.image.topics.by_name.get(wanted.topic)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
        old = topic.partitions.get(wanted.partition)
        if old is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.partition}."
            )
        if wanted.replicas is None:
            return self._cancel(topic, wanted.partition, old)
        self._controller.topics.validate_assignment(wanted.replicas)
        if not allow_factor_change:
            _check_same_factor(old, wanted.replicas)
        target = set(wanted.replicas)
        removing = sorted(set(old.replicas) - target)
        # A replica that an earlier reassignment was adding still has to come in sync; one that is not wanted any more
        # is only to be removed. (Apache Kafka 4.3 leaves it in both lists, and such a reassignment never ends.)
        adding = sorted((target - set(old.replicas)) | (target & set(old.adding_replicas)))
        return partition_change(
            topic.id,
            wanted.partition,
            old,
            self._controller.leadership.rules(topic),
            replicas=[*wanted.replicas, *removing],
            removing=removing,
            adding=adding,
        )

    def _cancel(self, topic: TopicImage, partition_id: int, old: PartitionImage) -> PartitionChangeRecord | None:
        """As before the reassignment: without the replicas that it adds, with those that it would remove."""
        if not (old.adding_replicas or old.removing_replicas):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = [broker for broker in old.replicas if broker not in old.adding_replicas]
        isr = [broker for broker in old.isr if broker not in old.adding_replicas]
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        leadership = self._controller.leadership
        election = leadership.election(topic.name)
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
            leadership.rules(topic),
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
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current} to {len(target)}",
        )
