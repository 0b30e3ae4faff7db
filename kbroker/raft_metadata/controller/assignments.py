"""Replicas of new partitions: assignments that a client has chosen, and those that the controller places itself."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.placement import UsableBroker, place_replicas
from kbroker.raft_metadata.controller.view import ControllerView
from kbroker.raft_metadata.image import DIR_MIGRATING, DIR_UNASSIGNED, PartitionImage
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.types import Uuid


def validate_assignment(view: ControllerView, brokers: Sequence[int], factor: int | None = None) -> None:
    """``ApiError`` INVALID_REPLICA_ASSIGNMENT unless these are distinct registered brokers, ``factor`` of them."""
    if not brokers:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        )
    previous: int | None = None
    for broker in sorted(brokers):
        if broker not in view.image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
            )
        if not view.image.brokers[broker].has_uncordoned_dirs:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but all its log directories are cordoned.",
            )
        if broker == previous:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker} more than once.",
            )
        previous = broker
    if factor is not None and len(brokers) != factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s).",
        )


def assigned_partition(
    view: ControllerView, partition_id: int, brokers: Sequence[int], factor: int | None
) -> PartitionImage:
    """A new partition on the brokers that a client has chosen; its active replicas are in sync.

    ``ApiError`` INVALID_REPLICA_ASSIGNMENT; ``factor`` is that of the topic's other partitions, if it has any.
    """
    validate_assignment(view, brokers, factor)
    isr = [broker for broker in brokers if view.is_active(broker)]
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition_id} are fenced or "
            "in controlled shutdown.",
        )
    return _new_partition(view, brokers, isr)


def place_on_brokers(view: ControllerView, count: int, factor: int) -> list[list[int]]:
    """Brokers for ``count`` new partitions with ``factor`` replicas each. ``ApiError`` INVALID_REPLICATION_FACTOR."""
    usable = [
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown and broker.has_uncordoned_dirs
    ]
    return place_replicas(usable, count, factor, view.rng)


def placed_partition(view: ControllerView, replicas: Sequence[int]) -> PartitionImage:
    """A new partition on brokers that the controller has chosen; its active replicas are in sync.

    ``ApiError`` INVALID_REPLICATION_FACTOR if none is active.
    """
    isr = [broker for broker in replicas if view.is_active(broker)]
    if not isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in "
            "controlled shutdown.",
        )
    return _new_partition(view, replicas, isr)


def default_directory(view: ControllerView, broker_id: int) -> Uuid:
    """The log directory of a new replica on this broker, as far as the controller can tell (KIP-858).

    A broker with one directory puts it there. MIGRATING below the level of ``metadata.version`` that has directories,
    and for a broker that registered without them.
    """
    if view.image.features.metadata_version < DIRECTORIES:
        return DIR_MIGRATING
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        return DIR_UNASSIGNED
    if not broker.log_dirs:
        return DIR_MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIR_UNASSIGNED


def _new_partition(view: ControllerView, replicas: Sequence[int], isr: Sequence[int]) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(replicas),
        isr=tuple(isr),
        leader=isr[0],
        directories=tuple(default_directory(view, broker) for broker in replicas),
    )
