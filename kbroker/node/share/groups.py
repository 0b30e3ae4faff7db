"""The parts of share groups on a node (KIP-932): the share coordinator, the persister and the share partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cores.share_coordinator.settings import ShareCoordinatorSettings
from kbroker.cores.share_partitions.settings import AutoOffsetReset, ResetTo, ShareGroupSettings, SharePartitionSettings
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.node.share.coordinator_driver import ShareCoordinatorDriver
from kbroker.node.share.dead_letters import DeadLetterQueue
from kbroker.node.share.partition_manager import SharePartitionManager
from kbroker.node.share.persister import SharePersister
from kbroker.raft_metadata.features import DEAD_LETTERS, SHARE_VERSION
from kbroker.raft_metadata.topics import SHARE_GROUP_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.config.share_group import ShareGroupConfig
    from kbroker.handlers.common.context import Services
    from kbroker.node.controller.image_publisher import Subscriber
    from kbroker.node.coordinators.group_driver import GroupDriver
    from kbroker.node.peers.peer_pool import PoolFor
    from kbroker.node.replicas.replica_manager import ReplicaManager


class ShareGroups(NamedTuple):
    """The parts, of which a node has one each."""

    coordinators: ShareCoordinatorDriver
    persister: SharePersister
    partitions: SharePartitionManager

    def start(self, subscribe: Callable[[Subscriber], None], start_soon: Callable[..., object]) -> None:
        """Set them to work: ``subscribe`` has them follow the metadata, ``start_soon`` begins a task."""
        for each in (self.coordinators, self.partitions):
            subscribe(each.on_image)
        start_soon(self.coordinators.run_tasks)
        start_soon(self.partitions.run)


def make_share_groups(
    services: Services, replica_manager: ReplicaManager, groups: GroupDriver, pool_for: PoolFor
) -> ShareGroups:
    """Return the parts of one node."""
    config = services.config
    coordinators = ShareCoordinatorDriver(services.env, replica_manager, ShareCoordinatorSettings.from_config(config))
    persister = SharePersister(
        coordinators,
        pool_for,
        node_id=config.node_id,
        ensure_topic=partial(ensure_internal_topic, services, SHARE_GROUP_STATE_TOPIC),
    )

    def config_of(group_id: str) -> ShareGroupConfig:
        return groups.group_config(group_id).share

    def settings(group_id: str) -> ShareGroupSettings:
        level = services.metadata.image.features.levels.get(SHARE_VERSION, 0)
        return share_group_settings(config_of(group_id), serves_dead_letters=level >= DEAD_LETTERS)

    partitions = SharePartitionManager(
        replica_manager,
        persister,
        settings,
        config.values["group.share.max.share.sessions"],
        DeadLetterQueue(services, pool_for, config_of, replica_manager.progress.traffic),
    )
    return ShareGroups(coordinators, persister, partitions)


def share_group_settings(config: ShareGroupConfig, *, serves_dead_letters: bool) -> ShareGroupSettings:
    """The configs of a group as the leaders of partitions read them."""
    duration = config.reset_duration_ms
    reset = ResetTo.BY_DURATION if duration is not None else ResetTo(config.auto_offset_reset)
    return ShareGroupSettings(
        SharePartitionSettings(
            record_lock_duration_ms=config.record_lock_duration_ms,
            delivery_count_limit=config.delivery_count_limit,
            max_record_locks=config.partition_max_record_locks,
            renew_enabled=config.renew_acknowledge_enable,
            has_dead_letter_queue=serves_dead_letters and bool(config.dead_letter_topic),
        ),
        AutoOffsetReset(reset, duration or 0),
        config.isolation_level == "read_committed",
    )
