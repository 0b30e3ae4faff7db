"""The broker configs that the group coordinator follows, under Kafka's names."""

from __future__ import annotations

from kbroker.config import BrokerConfig
from kbroker.config.assignors import assignor_name, assignor_names
from kbroker.value_types import dataclass

DESCRIPTION_PLUGIN = "group.streams.topology.description.plugin.class"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in milliseconds, sizes in members or bytes; the defaults are Kafka 4.3's."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000

    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is taken where no member asks for one."""
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    streams_max_size: int = 2**31 - 1
    keeps_descriptions: bool = False
    """Whether a plugin keeps the descriptions of topologies: a group is not forgotten while it may have one."""

    share_assignor: str = "simple"
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    """After which the initialization of a share partition's state is tried again, if nothing was heard of it."""

    new_member_join_timeout_ms: int = 300_000
    """The time that a new member may wait in JoinGroup before it counts as lost (fixed in Kafka)."""

    def allows_session_timeout(self, timeout_ms: int) -> bool:
        """Whether a classic member may have this session timeout."""
        return self.group_min_session_timeout_ms <= timeout_ms <= self.group_max_session_timeout_ms

    @property
    def is_migration_enabled(self) -> bool:
        """Whether a classic member may come into a consumer group."""
        return self.consumer_migration_policy.lower() != "disabled"

    @property
    def is_upgrade_enabled(self) -> bool:
        """Whether a classic group may become a consumer group while it has members."""
        return self.consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def is_downgrade_enabled(self) -> bool:
        """Whether a consumer group may become a classic group while it has members."""
        return self.consumer_migration_policy.lower() in ("downgrade", "bidirectional")

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        """The settings of a node's configuration."""
        return cls(
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=assignor_names(config.group_consumer_assignors),
            consumer_migration_policy=config.group_consumer_migration_policy,
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            streams_max_size=config.group_streams_max_size,
            keeps_descriptions=bool(config.values.get(DESCRIPTION_PLUGIN)),
            share_assignor=assignor_name(config.group_share_assignors[0]),
            share_max_size=config.group_share_max_size,
            share_initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        )
