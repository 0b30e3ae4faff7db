"""Log directories of brokers: AssignReplicasToDirs, failed directories (KIP-858), cordoned ones (KIP-1066)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.broker_changes import record_for_directory, records_to_leave_isrs
from kbroker.raft_metadata.controller.brokers import check_broker_epoch
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.metadata_version import CORDONED_DIRECTORIES, DIRECTORIES
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord


def newly_failed(view: ControllerView, broker_id: int, offline: Collection[Uuid]) -> list[Uuid]:
    """The directories that a broker reports as failed and that its registration still has."""
    if view.image.features.metadata_version < DIRECTORIES:
        return []
    return sorted(set(offline) & set(view.image.brokers[broker_id].log_dirs))


def directory_records(
    view: ControllerView, broker_id: int, offline: Collection[Uuid], cordoned: Collection[Uuid] | None
) -> Iterator[object]:
    """The records for directories that a broker reports as failed or cordoned (None: it does not know yet).

    Replicas in a failed directory leave the ISR, and others lead instead.
    """
    broker = view.image.brokers[broker_id]
    level = view.image.features.metadata_version
    failed = newly_failed(view, broker_id, offline)
    if failed:
        yield from records_to_leave_isrs(view, broker_id, lambda partition: partition.directory(broker_id) in failed)
        yield BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            log_dirs=[directory for directory in broker.log_dirs if directory not in failed],
        )
    if cordoned is not None and level >= CORDONED_DIRECTORIES:
        known = None if broker.cordoned_log_dirs is None else set(broker.cordoned_log_dirs)
        if known != set(cordoned):
            yield BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=sorted(cordoned)
            )


class ReplicaDirectory(NamedTuple):
    """The log directory of a broker's replica of a partition."""

    topic_id: Uuid
    partition: int
    directory: Uuid
    is_damaged: bool = False
    """Whether its log lacks what it once had: it is not eligible to lead any more."""


def assign_replicas(
    view: ControllerView, broker_id: int, broker_epoch: int, wanted: Sequence[ReplicaDirectory]
) -> ControllerResult[dict[ReplicaDirectory, ErrorCode]]:
    """Write down the log directories of a broker's replicas; the error code of each, NONE included.

    ``ApiError``: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNSUPPORTED_VERSION below the level that knows
    directories. Replicas in a directory that is not online leave the ISR.
    """
    broker = check_broker_epoch(view, broker_id, broker_epoch)
    if view.image.features.metadata_version < DIRECTORIES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    errors: dict[ReplicaDirectory, ErrorCode] = {}

    def records() -> Iterator[object]:
        for entry in wanted:
            record = None
            topic = view.image.topics.by_id.get(entry.topic_id)
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
                record = record_for_directory(
                    view, topic, entry.partition, partition, broker_id, entry.directory, is_online, entry.is_damaged
                )
            yield record

    return ControllerResult(errors, records())
