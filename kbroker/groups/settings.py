"""The broker configs that the group coordinator follows, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


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

    new_member_join_timeout_ms: int = 300_000
    """How long a new member's JoinGroup may wait before the member counts as lost (not configurable in Kafka)."""
