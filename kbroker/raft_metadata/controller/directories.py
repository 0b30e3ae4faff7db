"""Log directories of brokers: which have failed (KIP-858), which take no new replicas (KIP-1066)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.partition_changes import DIRECTORIES
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.types import Uuid
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

CORDONED_DIRECTORIES = 30
"""The level from which it knows cordoned ones."""


def directory_records(
    controller: Controller, broker_id: int, offline: Collection[Uuid], cordoned: Collection[Uuid] | None
) -> list[Any]:
    """What follows from a broker's saying that directories have failed, or are cordoned (None: not known yet).

    Replicas in a failed directory leave the ISR, and others lead instead.
    """
    broker = controller.image.brokers[broker_id]
    level = controller.image.features.metadata_version
    records: list[Any] = []
    failed = sorted(set(offline) & set(broker.log_dirs))
    if failed and level >= DIRECTORIES:
        records += controller.leadership.records_without(
            broker_id, lambda topic, partition_id, partition: partition.directory(broker_id) in failed
        )
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                log_dirs=[directory for directory in broker.log_dirs if directory not in failed],
            )
        )
    if cordoned is not None and level >= CORDONED_DIRECTORIES:
        known = None if broker.cordoned_log_dirs is None else set(broker.cordoned_log_dirs)
        if known != set(cordoned):
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted(cordoned)
                )
            )
    return records


class ReplicaDirectory(NamedTuple):
    """Where a broker's replica of a partition is."""

    topic_id: Uuid
    partition: int
    directory: Uuid


def assign_replicas(
    controller: Controller, broker_id: int, broker_epoch: int, wanted: Sequence[ReplicaDirectory]
) -> ControllerResult[dict[ReplicaDirectory, ErrorCode]]:
    """Write down where a broker has its replicas; the error of each, NONE included.

    ``ApiError``: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNSUPPORTED_VERSION below the level that knows
    directories. Replicas in a directory that is not online leave the ISR.
    """
    broker = controller.brokers.check_epoch(broker_id, broker_epoch)
    if controller.image.features.metadata_version < DIRECTORIES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    errors: dict[ReplicaDirectory, ErrorCode] = {}
    records: list[Any] = []
    for entry in wanted:
        topic = controller.image.topics.by_id.get(entry.topic_id)
        partition = None if topic is None else topic.partitions.get(entry.partition)
        if topic is None:
            errors[entry] = ErrorCode.UNKNOWN_TOPIC_ID
        elif partition is None:
            errors[entry] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in partition.replicas:
            errors[entry] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            errors[entry] = ErrorCode.NONE
            is_online = broker.has_online_dir(entry.directory)
            record = controller.leadership.record_for_directory(
                topic, entry.partition, partition, broker_id, entry.directory, is_online=is_online
            )
            if record is not None:
                records.append(record)
    return ControllerResult(errors, records)
