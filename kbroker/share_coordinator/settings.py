"""The broker configs that the share coordinator follows (``share.coordinator.*``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig


@dataclass(frozen=True)
class ShareCoordinatorSettings:
    """Times in milliseconds, sizes in bytes; the defaults are Kafka 4.4's."""

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
        values = config.values

        def value(name: str, default: int) -> int:
            return int(values.get(f"share.coordinator.{name}", default))

        return cls(
            updates_per_snapshot=value("snapshot.update.records.per.snapshot", cls.updates_per_snapshot),
            cold_snapshot_interval_ms=value("cold.partition.snapshot.interval.ms", cls.cold_snapshot_interval_ms),
            prune_interval_ms=value("state.topic.prune.interval.ms", cls.prune_interval_ms),
            write_timeout_ms=value("write.timeout.ms", cls.write_timeout_ms),
            topic_partitions=value("state.topic.num.partitions", cls.topic_partitions),
            topic_replication_factor=value("state.topic.replication.factor", cls.topic_replication_factor),
            topic_min_isr=value("state.topic.min.isr", cls.topic_min_isr),
            topic_segment_bytes=value("state.topic.segment.bytes", cls.topic_segment_bytes),
        )
