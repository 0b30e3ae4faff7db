"""The broker configs that the share coordinator follows (``share.coordinator.*``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.wire.compression import CompressionType

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


@dataclass(frozen=True)
class ShareCoordinatorSettings:
    """Times in milliseconds, sizes in bytes; the defaults are Kafka 4.4's."""

    append_linger_ms: int = -1
    codec: CompressionType = CompressionType.NONE
    updates_per_snapshot: int = 500
    cold_snapshot_interval_ms: int = 300_000
    prune_interval_ms: int = 300_000
    write_timeout_ms: int = 5_000
    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_min_isr: int = 2
    topic_segment_bytes: int = 104_857_600

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ShareCoordinatorSettings:
        """The settings of a node's configuration."""
        return cls(
            append_linger_ms=config.share_coordinator_append_linger_ms,
            codec=CompressionType(config.share_coordinator_state_topic_compression_codec),
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
            prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            topic_partitions=config.share_coordinator_state_topic_num_partitions,
            topic_replication_factor=config.share_coordinator_state_topic_replication_factor,
            topic_min_isr=config.share_coordinator_state_topic_min_isr,
            topic_segment_bytes=config.share_coordinator_state_topic_segment_bytes,
        )
