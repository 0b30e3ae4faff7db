"""The node's replication throttles, in step with the metadata: rates of brokers, throttled replicas of topics (KIP-73).

Readers and fetchers decide what they hold back; ``cores.replication.replication_quota`` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.config.config_key import InvalidConfig
from kbroker.config.run_time_only import (
    ALTER_LOG_DIRS_RATE,
    DYNAMIC_BROKER_CONFIGS,
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
)
from kbroker.cores.replication.replication_quota import UNLIMITED, ReplicationQuota, parse_throttled_replicas
from kbroker.raft_metadata.image import ResourceType

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.raft_metadata.image import ConfigsImage, MetadataDelta, MetadataImage
    from kbroker.runtime.env import Env

LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"


class ReplicationThrottles:
    """Rates at which this broker serves followers, fetches as one, and moves logs between its log dirs."""

    def __init__(self, env: Env, config: BrokerConfig) -> None:
        self._env = env
        self._node_id = config.node_id
        windows = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self.leader = ReplicationQuota(*windows)
        self.follower = ReplicationQuota(*windows)
        self.alter_log_dirs = ReplicationQuota(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds,
        )

    def now_ms(self) -> int:
        """The time that rates are measured by."""
        return int(self._env.now() * 1000)

    def on_image(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """Follow the metadata; without ``delta`` all of them."""
        configs = image.configs
        for resource in configs.by_resource if delta is None else delta.changed_configs:
            if resource.type == ResourceType.BROKER:
                self._set_rates(configs)
            elif resource.type == ResourceType.TOPIC:
                self._set_topic(resource.name, configs.for_topic(resource.name))

    def _set_rates(self, configs: ConfigsImage) -> None:
        values = {**configs.for_broker(None), **configs.for_broker(self._node_id)}
        for name, quota in (
            (LEADER_THROTTLED_RATE, self.leader),
            (FOLLOWER_THROTTLED_RATE, self.follower),
            (ALTER_LOG_DIRS_RATE, self.alter_log_dirs),
        ):
            quota.bound = _rate(name, values.get(name))

    def _set_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        for name, quota in ((LEADER_THROTTLED_REPLICAS, self.leader), (FOLLOWER_THROTTLED_REPLICAS, self.follower)):
            replicas = configs.get(name)
            if replicas:
                quota.throttle(topic, parse_throttled_replicas(replicas, self._node_id))
            else:
                quota.unthrottle(topic)


def _rate(name: str, value: str | None) -> int:
    if value is None:
        return UNLIMITED
    try:
        return int(DYNAMIC_BROKER_CONFIGS.parse(name, value))
    except InvalidConfig:
        return UNLIMITED  # stored by an earlier release, which did not judge it
