"""The node's group coordinator: shards of groups over ``__consumer_offsets``, which follow configs and topics."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS, OwnAssignors
from kbroker.cores.groups.settings import GroupSettings
from kbroker.cores.groups.topics import TopicMetadata
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.coordinator_driver import CoordinatorDriver
from kbroker.raft_metadata.topics import CONSUMER_OFFSETS_TOPIC
from kbroker.wire.compression import CompressionType

if TYPE_CHECKING:
    from kbroker.config import GroupConfig
    from kbroker.cores.groups.group_coordinator import GroupCoordinator
    from kbroker.cores.groups.share.requests import StateInitialization
    from kbroker.cores.share_state import Persister
    from kbroker.handlers.services.coordinators import Descriptions
    from kbroker.node.coordinators.coordinator_shard import Shard
    from kbroker.node.peers.peer_pool import PeerPool
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, TopicImage
    from kbroker.runtime.env import Env
    from kbroker.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


class GroupDriver(CoordinatorDriver["GroupCoordinator"]):
    """Drives the groups that this node coordinates."""

    TOPIC = CONSUMER_OFFSETS_TOPIC
    WHAT_IT_HOLDS = "groups"

    def __init__(
        self,
        *,
        env: Env,
        replica_manager: ReplicaManager,
        settings: Callable[[], GroupSettings],
        group_config: Callable[[MetadataImage, str], GroupConfig],
        peers: PeerPool,
        linger_ms: int,
        codec: CompressionType = CompressionType.NONE,
        own_assignors: OwnAssignors = NO_OWN_ASSIGNORS,
    ) -> None:
        """``group_config`` computes the configs in force for a group from a metadata image.

        ``linger_ms`` is ``group.coordinator.append.linger.ms``, ``codec`` is ``offsets.topic.compression.codec``.
        """
        super().__init__(env, replica_manager)
        self._steps.linger_ms = linger_ms
        self._steps.codec = codec
        self.rebalances: Counter[str] = Counter()
        """Rebalances by type of group, since this node started."""
        self._settings = settings
        self._compute_group_config = group_config
        self._group_configs: dict[str, GroupConfig] = {}
        self._image: Any = None
        self._topics: ImageTopics | None = None
        self._peers = peers
        self._own_assignors = own_assignors
        self.share_persister: Callable[[], Persister] | None = None
        """The way to the share coordinator, made with its first use."""
        self.descriptions: Descriptions | None = None
        """None on a node that keeps no descriptions of topologies."""

    def settings(self) -> GroupSettings:
        """The node's properties of groups, as they are now."""
        return self._settings()

    def commit_time_ms(self, now_ms: int) -> int:
        """The time that a commit is stored with: the wall clock's, where that is ahead (`clock_ahead_ms`)."""
        return max(now_ms, self._env.wall_clock_ms())

    def _new_core(self) -> GroupCoordinator:
        # With the first shard: a node without groups starts without them.
        from kbroker.cores.groups.group_coordinator import GroupCoordinator

        rng = random.Random(self._env.rng.getrandbits(64))
        core = GroupCoordinator(self._settings, rng, self.group_config, self._own_assignors, self.rebalances)
        if self._topics is not None:
            core.on_topics(self._topics, (), False)
        return core

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow leadership, configs and topics, and forget offsets of deleted topics."""
        self._follow_configs_and_topics(delta, image)
        super().on_image(delta, image)
        deleted = [
            (topic.name, topic_id)
            for topic_id, topic in delta.deleted_topics.items()
            if topic.name != CONSUMER_OFFSETS_TOPIC
        ]
        if deleted:
            self._manager.start_soon(self._forget_topics, deleted)

    async def _forget_topics(self, deleted: Collection[tuple[str, Uuid]]) -> None:
        """Forget the offsets of topics that are gone, those of one shard in a turn of the event loop.

        A shard that is being loaded does so afterwards: nobody would tell it again.
        """
        for index in list(self.shards):
            self.run_when_loaded(index, lambda core: core.on_topics_deleted(deleted))
            await trio.lowlevel.checkpoint()

    def end_transaction(
        self, index: int, marker: bytearray, producer_id: int, commit: bool, transaction_version: int
    ) -> int:
        """Append the marker that ends a transaction with offsets in it. Returns the log's end after it.

        `ApiError`: NOT_LEADER_OR_FOLLOWER, also while the groups are being loaded, or the log's reason to refuse it.
        """
        shard = self.shards.get(index)
        if shard is None or not shard.loaded.is_set():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        info = shard.partition.append_as_coordinator(
            marker, self._env.wall_clock_ms(), transaction_version=transaction_version
        )
        try:
            shard.core.replay_end_transaction(producer_id, commit)
        except Exception:
            self.failed(shard)
        return info.last_offset + 1

    def after_step(self, shard: Shard[GroupCoordinator]) -> None:
        """Also have the share coordinator make the states that share groups need."""
        super().after_step(shard)
        if self.share_persister is not None:
            for wanted in shard.core.take_wanted_states():
                self._manager.start_soon(self._initialize_states, wanted, self.share_persister())

    async def _initialize_states(self, wanted: StateInitialization, persister: Persister) -> None:
        """Have states made, and the group hear of it. A group that moves meanwhile asks again where it is then."""
        errors = await persister.initialize(wanted.group_id, wanted.partitions)
        failed = {error.name for error in errors.values() if error}
        if failed:
            logger.info("group %s: share partitions cannot begin: %s", wanted.group_id, ", ".join(sorted(failed)))
        try:
            await self.run(wanted.group_id, lambda core, now_ms: core.share_admin.state_initialized(wanted, errors))
        except ApiError as error:
            logger.info("group %s: the outcome is not stored: %s", wanted.group_id, error)

    async def latest_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        """The ends of partitions, wherever they are led, or the reasons why they are not known."""
        if not partitions:
            return {}
        from kbroker.node.coordinators.latest_offsets import latest_offsets

        return await latest_offsets(partitions, self._image, self._manager, self._peers)

    def _follow_configs_and_topics(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if before is None or before.configs is not image.configs:
            self._group_configs = {}
        if before is not None and before.topics is image.topics:
            return
        self._topics = ImageTopics(image)
        old = {} if before is None else before.topics.by_id
        changed = {old[topic_id].name for topic_id in delta.deleted_topics if topic_id in old}
        new = [topic_id for topic_id in delta.changed_topics if topic_id not in old]
        for topic_id in delta.changed_topics:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                changed.add(topic.name)
        for shard in self.shards.values():
            shard.core.on_topics(self._topics, changed, bool(new))

    def group_config(self, group_id: str) -> GroupConfig:
        """The configs in force for a group."""
        found = self._group_configs.get(group_id)
        if found is None:
            found = self._group_configs[group_id] = self._compute_group_config(self._image, group_id)
        return found


class ImageTopics:
    """Implements ``kbroker.cores.groups.topics.CoordinatorMetadataImage``, with a cache."""

    def __init__(self, image: MetadataImage) -> None:
        self.version = image.offset
        self._topics = image.topics
        self._brokers = image.brokers
        self._known: dict[str, TopicMetadata] = {}

    def names(self) -> Iterable[str]:
        """Every topic."""
        return self._topics.by_name

    def by_name(self, name: str) -> TopicMetadata | None:
        """The topic of that name."""
        known = self._known.get(name)
        if known is None:
            topic = self._topics.by_name.get(name)
            if topic is None:
                return None
            known = self._known[name] = TopicMetadata(topic.name, topic.id, len(topic.partitions), self._racks(topic))
        return known

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic of that id."""
        topic = self._topics.by_id.get(topic_id)
        return None if topic is None else self.by_name(topic.name)

    def partition_count(self, topic_id: Uuid) -> int:
        """The topic's number of partitions, -1 if it does not exist."""
        topic = self._topics.by_id.get(topic_id)
        return -1 if topic is None else len(topic.partitions)

    def _racks(self, topic: TopicImage) -> tuple[tuple[str, ...], ...]:
        racks = {broker_id: broker.rack for broker_id, broker in self._brokers.items() if broker.rack is not None}
        if not racks:
            return ()
        return tuple(
            tuple(sorted(racks[replica] for replica in partition.replicas if replica in racks))
            for partition in topic.partitions.values()
        )
