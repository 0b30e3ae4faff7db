"""Moving partitions to other brokers: AlterPartitionReassignments (KIP-455).

A reassignment adds the new replicas, waits until they are in the ISR, and takes the old ones out. One that needs no new
replica (another order, fewer replicas) is complete at once; so it is on a cluster of one broker, which can be asked for
nothing else. Rules: Kafka's ``PartitionReassignmentReplicas`` and ``PartitionReassignmentRevert``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import NO_LEADER, PartitionImage, TopicImage
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
            new = self._cancelled(wanted, old)
        else:
            self._controller.topics.validate_assignment(wanted.replicas)
            if not allow_factor_change:
                _check_same_factor(old, wanted.replicas)
            new = _complete_if_possible(_begun(old, wanted.replicas))
        return self._change(topic, wanted.partition, old, new)

    def _cancelled(self, wanted: Reassignment, old: PartitionImage) -> PartitionImage:
        """As before the reassignment: without the replicas that it adds, with those that it would remove."""
        if not (old.adding_replicas or old.removing_replicas):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = tuple(broker for broker in old.replicas if broker not in old.adding_replicas)
        isr = tuple(broker for broker in old.isr if broker not in old.adding_replicas)
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        if not isr:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {wanted.topic}:{wanted.partition} because it would require "
                "an unclean leader election.",
            )
        return replace(old, replicas=replicas, isr=isr, adding_replicas=(), removing_replicas=())

    def _change(
        self, topic: TopicImage, partition_id: int, old: PartitionImage, new: PartitionImage
    ) -> PartitionChangeRecord | None:
        """The record that makes ``new`` of ``old``, with a leader of the new ISR; None if they are the same."""
        if new == old:
            return None
        record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id)
        if new.replicas != old.replicas:
            record.replicas = list(new.replicas)
            record.directories = [
                old.directory(broker) if broker in old.replicas else self._controller.topics.directory(broker)
                for broker in new.replicas
            ]
        if new.isr != old.isr:
            record.isr = list(new.isr)
        if new.adding_replicas != old.adding_replicas:
            record.adding_replicas = list(new.adding_replicas)
        if new.removing_replicas != old.removing_replicas:
            record.removing_replicas = list(new.removing_replicas)
        if old.leader not in new.isr:
            is_active = self._controller.brokers.is_active
            candidates = [broker for broker in new.replicas if broker in new.isr and is_active(broker)]
            record.leader = candidates[0] if candidates else NO_LEADER
        elif not set(old.replicas) <= set(new.replicas):
            # Replicas that are gone must not be followed any more: the same leader begins a new epoch.
            record.leader = old.leader
        return record


def _begun(old: PartitionImage, target: Sequence[int]) -> PartitionImage:
    removing = tuple(sorted(set(old.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(old.replicas)))
    return replace(
        old,
        replicas=(*target, *removing),
        removing_replicas=removing or old.removing_replicas,
        adding_replicas=adding or old.adding_replicas,
    )


def _complete_if_possible(partition: PartitionImage) -> PartitionImage:
    """The partition at the end of its reassignment if its ISR allows it, else as it is."""
    adding, removing = partition.adding_replicas, partition.removing_replicas
    if not (adding or removing):
        return partition
    replicas = tuple(broker for broker in partition.replicas if broker not in removing)
    isr = tuple(broker for broker in partition.isr if broker not in removing)
    # With fewer replicas than before, the ISR must not shrink more than it has to.
    needed = {*adding} if len(adding) >= len(removing) else {*adding, *replicas}
    if not isr or not needed <= set(isr):
        return partition
    return replace(partition, replicas=replicas, isr=isr, adding_replicas=(), removing_replicas=())


def _check_same_factor(old: PartitionImage, target: Sequence[int]) -> None:
    current = len((set(old.replicas) | set(old.adding_replicas)) - set(old.removing_replicas))
    if current != len(target):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {current} to {len(target)}",
        )
