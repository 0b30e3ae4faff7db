"""The parts of share groups on a node besides their coordinators (KIP-932): the persister and the share partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbroker.handlers.internal_topics import ensure_internal_topic
from kbroker.node.share_partition_manager import SharePartitionManager
from kbroker.node.share_persister import SharePersister
from kbroker.raft_metadata.topics import SHARE_GROUP_STATE_TOPIC
from kbroker.share_partitions.settings import (
    AutoOffsetReset,
    ResetTo,
    ShareGroupSettings,
    SharePartitionSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.config.share_group import ShareGroupConfig
    from kbroker.env import Network
    from kbroker.handlers.context import Services
    from kbroker.node.group_driver import GroupDriver
    from kbroker.node.replica_manager import ReplicaManager
    from kbroker.node.share_coordinator_driver import ShareCoordinatorDriver


def serve_share_groups(
    services: Services,
    replica_manager: ReplicaManager,
    groups: GroupDriver,
    coordinators: ShareCoordinatorDriver,
    network: Network,
    address_of: Callable[[int], tuple[str, int] | None],
) -> SharePartitionManager:
    """Give the services, and the group coordinator, what share groups need.

    The caller subscribes the share partitions to the metadata, and runs them. ``network`` reaches other brokers where
    ``address_of`` says.
    """
    config = services.config
    persister = SharePersister(
        coordinators,
        network,
        node_id=config.node_id,
        address_of=address_of,
        ensure_topic=partial(ensure_internal_topic, services, SHARE_GROUP_STATE_TOPIC),
        timeout_ms=config.request_timeout_ms,
    )

    def settings(group_id: str) -> ShareGroupSettings:
        return share_group_settings(groups.group_config(group_id).share)

    partitions = SharePartitionManager(
        replica_manager, persister, settings, config.values["group.share.max.share.sessions"]
    )
    services.share_coordinators = coordinators
    services.share_persister = groups.share_persister = persister
    services.share_partitions = lambda: partitions
    return partitions


def share_group_settings(config: ShareGroupConfig) -> ShareGroupSettings:
    """The configs of a group as the leaders of partitions read them."""
    duration = config.reset_duration_ms
    reset = ResetTo.BY_DURATION if duration is not None else ResetTo(config.auto_offset_reset)
    return ShareGroupSettings(
        SharePartitionSettings(
            record_lock_duration_ms=config.record_lock_duration_ms,
            delivery_count_limit=config.delivery_count_limit,
            max_record_locks=config.partition_max_record_locks,
            renew_enabled=config.renew_acknowledge_enable,
        ),
        AutoOffsetReset(reset, duration or 0),
        config.isolation_level == "read_committed",
    )
