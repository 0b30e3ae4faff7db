"""Log directories of brokers: which have failed (KIP-858), which take no new replicas (KIP-1066)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kbroker.types import Uuid
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from kbroker.raft_metadata.controller.controller import Controller

OFFLINE_DIRECTORIES = 17
"""The level of ``metadata.version`` from which the log knows directories."""
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
    if failed and level >= OFFLINE_DIRECTORIES:
        topics = controller.image.topics.by_id
        records += [
            record
            for record in controller.topics.leader_records_for_fenced(broker_id)
            if topics[Uuid(record.topic_id)].partitions[record.partition_id].directory(broker_id) in failed
        ]
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
