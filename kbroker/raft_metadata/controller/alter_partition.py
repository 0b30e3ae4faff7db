"""AlterPartition: a leader proposes the ISR of its partitions (KIP-497, KIP-841, KIP-903).

Checks in the order of Kafka's ``ReplicationControlManager.alterPartition``. A reassignment ends here, when the last of
the new replicas joins the ISR.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.controller.broker_changes import automatic_election, change_rules
from kbroker.raft_metadata.controller.brokers import check_broker_epoch
from kbroker.raft_metadata.controller.partition_changes import partition_change
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionImage,
    TopicImage,
    changed_partition,
)
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import PartitionChangeRecord

logger = logging.getLogger(__name__)

UNKNOWN_EPOCH = -1
"""A broker epoch that is not checked: the leader does not know it (version 2, or a follower that did not send it)."""


class InSyncReplica(NamedTuple):
    """A member of the proposed ISR, and the broker epoch in which the leader knows it to be in sync (KIP-903)."""

    broker_id: int
    broker_epoch: int = UNKNOWN_EPOCH


class IsrChange(NamedTuple):
    """The ISR that a leader proposes for a partition that it leads in ``leader_epoch``, seen at ``partition_epoch``."""

    topic_id: Uuid
    partition: int
    leader_epoch: int
    isr: Sequence[InSyncReplica]
    leader_recovery_state: int
    partition_epoch: int


def alter_partitions(
    view: ControllerView, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> ControllerResult[list[PartitionImage | ErrorCode]]:
    """Change ISRs; the partition as it is now or an error for each, in order.

    ``ApiError``: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
    """
    check_broker_epoch(view, broker_id, broker_epoch)
    records: list[PartitionChangeRecord] = []
    results: list[PartitionImage | ErrorCode] = []
    topic_before: TopicImage | None = None
    for change in changes:
        topic = view.image.topics.by_id.get(change.topic_id)
        if topic is None:
            results.append(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        partition = topic.partitions.get(change.partition)
        if partition is None:
            results.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        error = _problem(view, broker_id, topic, partition, change)
        if error is not None:
            results.append(error)
            continue
        if topic is not topic_before:
            topic_before = topic
            rules, election = change_rules(view, topic), automatic_election(view, topic.name)
        record = partition_change(
            topic.id,
            change.partition,
            partition,
            rules,
            isr=[replica.broker_id for replica in change.isr],
            leader_recovery_state=change.leader_recovery_state,
            election=election,
        )
        if record is None:
            results.append(partition)
            continue
        records.append(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The ISR completes a reassignment, after which another leads: both an error and a change.
            results.append(ErrorCode.NEW_LEADER_ELECTED)
        else:
            results.append(changed_partition(partition, record))
    return ControllerResult(results, list(records))


def _problem(
    view: ControllerView, broker_id: int, topic: TopicImage, partition: PartitionImage, change: IsrChange
) -> ErrorCode | None:
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        # The leader has seen changes that this controller has not: another node is the active controller.
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [replica.broker_id for replica in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if change.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if change.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    ineligible = [
        f"{replica.broker_id} ({reason})"
        for replica in change.isr
        if (reason := _why_ineligible(view, partition, replica)) is not None
    ]
    if ineligible:
        logger.info(
            "broker %d may not have %s in the ISR of %s-%d",
            broker_id,
            ", ".join(ineligible),
            topic.name,
            change.partition,
        )
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _why_ineligible(view: ControllerView, partition: PartitionImage, replica: InSyncReplica) -> str | None:
    broker = view.image.brokers.get(replica.broker_id)
    if broker is None:
        return "not registered"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker.fenced:
        return "fenced"
    if replica.broker_epoch not in (UNKNOWN_EPOCH, broker.epoch):
        return f"its epoch is {broker.epoch}, not {replica.broker_epoch}"
    if not broker.has_online_dir(partition.directory(replica.broker_id)):
        return "its log directory is offline"
    return None
