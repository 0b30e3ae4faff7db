"""The part of a topic's configuration that its logs need, as typed values.

The names are Kafka's topic configs with underscores (``segment.bytes`` is ``segment_bytes``) and the
defaults are those of ``LogConfig`` in Apache Kafka 4.4.0. Parsing and validating text is the business of
``kbroker.config``; a ``LogConfig`` is what comes out of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.value_types import dataclass, field

_MAX_LONG = 2**63 - 1
_WEEK_MS = 7 * 24 * 60 * 60 * 1000

NO_RECORD_LIMIT = 2**31 - 9
"""The largest array of a JVM: no record can be larger."""

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs. Sizes are bytes, durations milliseconds; -1 is "no limit" for retention."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_message_bytes: int = NO_RECORD_LIMIT
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _MAX_LONG
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = _MAX_LONG
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    header_suffices: bool = field(init=False)
    """Whether a batch with plausible timestamps can be judged by its header, and stored as it is. Derived, because
    each batch asks."""
    index_safe_size: int = field(init=False)
    """The bytes below which no index of a segment can be full, as it has an entry per interval at most."""
    longest_segment_ms: int = field(init=False)
    """The time for which a segment is active, at most. A record must not stay in it longer than until it is to be
    compacted."""

    def __post_init__(self) -> None:
        suffices = (
            self.message_timestamp_type == CREATE_TIME
            and self.message_timestamp_before_max_ms == _MAX_LONG
            and self.compression_type == "producer"
            and not self.compact
            and not self.limits_records
        )
        lag = self.max_compaction_lag_ms
        longest = min(self.segment_ms, lag) if self.compact and lag > 0 else self.segment_ms
        safe = max(0, self.segment_index_bytes // 12 - 2) * (self.index_interval_bytes + 1)
        object.__setattr__(self, "header_suffices", suffices)
        object.__setattr__(self, "index_safe_size", safe)
        object.__setattr__(self, "longest_segment_ms", longest)

    @property
    def limits_records(self) -> bool:
        """The records of compressed batches have a limit (``max.decompressed.message.bytes`` below the largest)."""
        return self.max_decompressed_message_bytes < NO_RECORD_LIMIT

    @property
    def compact(self) -> bool:
        """Old values of a key are removed (``cleanup.policy`` holds "compact")."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Old segments are removed by time and size (``cleanup.policy`` holds "delete")."""
        return "delete" in self.cleanup_policy

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> LogConfig:
        """From Kafka's names to parsed values (int, float, str, list); absent ones get the default.

        Text is taken too, as ``kbroker.config`` has validated it; names that no log needs are left out.
        ``internal.segment.bytes`` (Kafka's way to small segments in tests) wins over ``segment.bytes``.
        """
        defaults, known = cls(), frozenset[str](cls.__match_args__)
        chosen: dict[str, object] = {}
        for name, value in values.items():
            key = name.replace(".", "_")
            if key in known and value is not None:
                chosen[key] = _typed(getattr(defaults, key), value)
        internal = values.get("internal.segment.bytes")
        if internal is not None:
            chosen["segment_bytes"] = _typed(0, internal)
        return cls(**chosen)  # type: ignore[arg-type]


def _typed(default: object, value: object) -> object:
    if isinstance(default, frozenset):
        parts = value.split(",") if isinstance(value, str) else value
        assert isinstance(parts, list | tuple | set | frozenset)
        return frozenset(str(part).strip().lower() for part in parts if str(part).strip())
    if isinstance(default, int):
        return int(value)  # type: ignore[call-overload]
    if isinstance(default, float):
        return float(value)  # type: ignore[arg-type]
    return str(value)
