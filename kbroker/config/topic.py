"""The properties of a topic."""

from __future__ import annotations

from kbroker.config.config_key import ConfigDef, ListOf, OneOf, Range, ThrottledReplicas
from kbroker.config.table import BOOLEAN, DOUBLE, INT, LIST, LONG, MEDIUM, STRING, Table


class TopicProperties(Table):
    """Properties of a topic."""

    cleanup_policy = LIST("delete", MEDIUM, ListOf(("compact", "delete")))
    """The treatment of old segments: `delete` drops them by time and size, `compact` keeps the last record of each key,
    both may be combined, an empty list keeps everything."""
    compression_gzip_level = INT("-1", MEDIUM, Range(1, 9, also=-1))
    """Level of gzip when the broker itself compresses; -1 is zlib's own default."""
    compression_lz4_level = INT("9", MEDIUM, Range(1, 17))
    """Level of lz4 when the broker itself compresses."""
    compression_zstd_level = INT("3", MEDIUM, Range(-131072, 22))
    """Level of zstd when the broker itself compresses."""
    compression_type = STRING("producer", MEDIUM, OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")))
    """Codec that batches are stored in; `producer` keeps what the producer chose."""
    delete_retention_ms = LONG("86400000", MEDIUM, Range(0))
    """Time that a compacted topic keeps a tombstone after it has been cleaned once, in milliseconds."""
    file_delete_delay_ms = LONG("60000", MEDIUM, Range(0))
    """Time that a removed segment's files stay on disk under a `.deleted` name, in milliseconds."""
    flush_messages = LONG("9223372036854775807", MEDIUM, Range(1))
    """Number of records after which a partition is flushed to disk; by default left to the operating system."""
    flush_ms = LONG("9223372036854775807", MEDIUM, Range(0))
    """Milliseconds after which unflushed records are flushed to disk; by default left to the operating system."""
    follower_replication_throttled_replicas = LIST("", MEDIUM, ThrottledReplicas())
    """Replicas whose fetching counts against the follower throttle: `*`, or `partition:broker` pairs."""
    leader_replication_throttled_replicas = LIST("", MEDIUM, ThrottledReplicas())
    """Replicas whose serving counts against the leader throttle: `*`, or `partition:broker` pairs."""
    index_interval_bytes = INT("4096", MEDIUM, Range(0))
    """Bytes of records between two entries of the offset index."""
    local_retention_bytes = LONG("-2", MEDIUM, Range(-2), no_effect="kbroker has no tiered storage")
    """With tiered storage, bytes kept on local disk; -2 follows retention.bytes."""
    local_retention_ms = LONG("-2", MEDIUM, Range(-2), no_effect="kbroker has no tiered storage")
    """With tiered storage, milliseconds kept on local disk; -2 follows retention.ms."""
    errors_deadletterqueue_group_enable = BOOLEAN("false", MEDIUM)
    """Let share groups write to this topic what they give up."""
    max_decompressed_message_bytes = INT("2147483639", MEDIUM, Range(1, 2147483639))
    """Largest record that is taken in a compressed batch, in bytes after decompression; what is stored already is
    compacted and looked up whatever its size."""
    remote_copy_lag_bytes = LONG("-1", MEDIUM, Range(-1), no_effect="kbroker has no tiered storage")
    """With tiered storage, bytes after which a segment is uploaded; -1 follows retention."""
    remote_copy_lag_ms = LONG("0", MEDIUM, Range(-1), no_effect="kbroker has no tiered storage")
    """With tiered storage, milliseconds after which a segment is uploaded; -1 follows retention."""
    max_compaction_lag_ms = LONG("9223372036854775807", MEDIUM, Range(1))
    """Longest time a record may stay uncompacted, in milliseconds."""
    min_compaction_lag_ms = LONG("0", MEDIUM, Range(0))
    """Shortest time a record stays uncompacted, in milliseconds."""
    max_message_bytes = INT("1048588", MEDIUM, Range(0))
    """Largest batch that a producer may append, after compression, in bytes."""
    message_timestamp_after_max_ms = LONG("3600000", MEDIUM, Range(0))
    """Time that a record's timestamp may lie ahead of the broker's clock, in milliseconds; only for CreateTime."""
    message_timestamp_before_max_ms = LONG("9223372036854775807", MEDIUM, Range(0))
    """Time that a record's timestamp may lie behind the broker's clock, in milliseconds; only for CreateTime."""
    message_timestamp_type = STRING("CreateTime", MEDIUM, OneOf(("CreateTime", "LogAppendTime")))
    """Clock that stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`)."""
    min_cleanable_dirty_ratio = DOUBLE("0.5", MEDIUM, Range(0, 1))
    """Uncompacted share of a log at which the compactor takes it up."""
    min_insync_replicas = INT("1", MEDIUM, Range(1))
    """Replicas that must be in sync for a produce request with acks=all to be accepted."""
    preallocate = BOOLEAN("false", MEDIUM, no_effect="segments grow as they are written")
    """Reserve a new segment's disk space when it is created."""
    remote_log_copy_disable = BOOLEAN("false", MEDIUM, no_effect="kbroker has no tiered storage")
    """With tiered storage, stop copying to the remote tier."""
    remote_log_delete_on_disable = BOOLEAN("false", MEDIUM, no_effect="kbroker has no tiered storage")
    """With tiered storage, delete remote data when the topic leaves the tier."""
    remote_storage_enable = BOOLEAN("false", MEDIUM, no_effect="kbroker has no tiered storage")
    """Keep older segments in tiered storage."""
    retention_bytes = LONG("-1", MEDIUM)
    """Size at which a partition drops its oldest segments, in bytes; -1 is without limit."""
    retention_ms = LONG("604800000", MEDIUM, Range(-1))
    """Age at which records may be dropped, in milliseconds; -1 keeps them for ever."""
    segment_bytes = INT("1073741824", MEDIUM, Range(1048576))
    """Size at which a new segment is begun, in bytes."""
    segment_index_bytes = INT("10485760", MEDIUM, Range(4))
    """Largest size of a segment's index file, in bytes; a full index begins a new segment."""
    segment_jitter_ms = LONG("0", MEDIUM, Range(0))
    """Random share taken off segment.ms, so that partitions do not roll all at once, in milliseconds."""
    segment_ms = LONG("604800000", MEDIUM, Range(1))
    """Age at which a new segment is begun even if it is not full, in milliseconds."""
    internal_segment_bytes = INT(None, MEDIUM, internal=True)
    """As segment.bytes without its lower limit; for tests."""
    unclean_leader_election_enable = BOOLEAN("false", MEDIUM)
    """Let a replica that is out of sync become leader when no other is left, at the price of lost records."""


TOPIC_CONFIGS = ConfigDef("topic", TopicProperties.KEYS)
"""Every property that a topic may have."""
