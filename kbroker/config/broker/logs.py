"""Properties of logs, most of which are defaults of a topic's, and of their replicas."""

from __future__ import annotations

from kbroker.config.config_key import ListOf, OneOf, Range
from kbroker.config.table import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
    Table,
    derived,
)


class LogProperties(Table):
    """Properties of logs: where they are, flushing, retention, compaction; most are defaults of a topic's."""

    auto_create_topics_enable = BOOLEAN("true", HIGH)
    """Create a topic when a client that allows it asks for one that does not exist."""
    delete_topic_enable = BOOLEAN("true", HIGH)
    """Allow topics to be deleted."""
    num_partitions = INT("1", MEDIUM, Range(1))
    """Partitions of a topic created automatically or without a count."""
    compression_gzip_level = INT("-1", MEDIUM, Range(1, 9, also=-1), mode=CLUSTER_WIDE)
    """Default of the topic property compression.gzip.level."""
    compression_lz4_level = INT("9", MEDIUM, Range(1, 17), mode=CLUSTER_WIDE)
    """Default of the topic property compression.lz4.level."""
    compression_zstd_level = INT("3", MEDIUM, Range(-131072, 22), mode=CLUSTER_WIDE)
    """Default of the topic property compression.zstd.level."""
    compression_type = STRING(
        "producer", HIGH, OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), mode=CLUSTER_WIDE
    )
    """Default of the topic property compression.type."""
    log_cleaner_backoff_ms = LONG("15000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Time that the compactor rests when there is nothing to do, in milliseconds."""
    log_cleaner_dedupe_buffer_size = LONG("134217728", MEDIUM, mode=CLUSTER_WIDE)
    """Memory for the compactor's table of keys, in bytes."""
    log_cleaner_delete_retention_ms = LONG("86400000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property delete.retention.ms."""
    log_cleaner_enable = BOOLEAN("true", MEDIUM)
    """Run the compactor."""
    log_cleaner_io_buffer_load_factor = DOUBLE("0.9", MEDIUM, mode=CLUSTER_WIDE)
    """Share of the compactor's table of keys that may be filled."""
    log_cleaner_io_buffer_size = INT("524288", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Memory for the compactor's reading and writing, in bytes."""
    log_cleaner_io_max_bytes_per_second = DOUBLE("1.7976931348623157E308", MEDIUM, mode=CLUSTER_WIDE)
    """Throttle of the compactor's reading and writing, in bytes a second."""
    log_cleaner_max_compaction_lag_ms = LONG("9223372036854775807", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Default of the topic property max.compaction.lag.ms."""
    log_cleaner_min_cleanable_ratio = DOUBLE("0.5", MEDIUM, Range(0, 1), mode=CLUSTER_WIDE)
    """Default of the topic property min.cleanable.dirty.ratio."""
    log_cleaner_min_compaction_lag_ms = LONG("0", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property min.compaction.lag.ms."""
    log_cleaner_threads = INT("1", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Number of compactors."""
    log_cleanup_policy = LIST("delete", MEDIUM, ListOf(("compact", "delete")), mode=CLUSTER_WIDE)
    """Default of the topic property cleanup.policy."""
    log_dir = LIST("/tmp/kafka-logs", HIGH, ListOf(may_be_empty=False))
    """Directory of the data when log.dirs is not given."""
    log_dir_failure_timeout_ms = LONG("30000", LOW, Range(1))
    """Time that a broker tries to tell the controller of a failed directory before it stops, in milliseconds."""
    cordoned_log_dirs = LIST("", MEDIUM, mode=PER_BROKER)
    """Log directories that get no new partitions, `*` for all."""
    log_dirs: tuple[str, ...] = derived(LIST(None, HIGH, ListOf(may_be_empty=False, may_be_null=True)))
    """Directories of the data."""
    log_flush_interval_messages = LONG("9223372036854775807", HIGH, Range(1), mode=CLUSTER_WIDE)
    """Default of the topic property flush.messages."""
    log_flush_interval_ms = LONG(None, HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property flush.ms; when null, log.flush.scheduler.interval.ms."""
    log_flush_offset_checkpoint_interval_ms = INT(
        "60000", HIGH, Range(0), no_effect="both are written with the high watermarks, and on a clean stop"
    )
    """Milliseconds between two writings of the recovery points."""
    log_flush_scheduler_interval_ms = LONG("9223372036854775807", HIGH)
    """Milliseconds between two looks for logs that need a flush."""
    log_flush_start_offset_checkpoint_interval_ms = INT(
        "60000", HIGH, Range(0), no_effect="both are written with the high watermarks, and on a clean stop"
    )
    """Milliseconds between two writings of the log start offsets."""
    log_index_interval_bytes = INT("4096", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property index.interval.bytes."""
    log_index_size_max_bytes = INT("10485760", MEDIUM, Range(4), mode=CLUSTER_WIDE)
    """Default of the topic property segment.index.bytes."""
    log_initial_task_delay_ms = LONG("30000", LOW, Range(0), internal=True)
    """Delay of the first background task on the logs, in milliseconds; for tests."""
    log_local_retention_bytes = LONG(
        "-2", MEDIUM, Range(-2), mode=CLUSTER_WIDE, no_effect="kbroker has no tiered storage"
    )
    """Default of the topic property local.retention.bytes."""
    log_local_retention_ms = LONG("-2", MEDIUM, Range(-2), mode=CLUSTER_WIDE, no_effect="kbroker has no tiered storage")
    """Default of the topic property local.retention.ms."""
    log_message_timestamp_after_max_ms = LONG("3600000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property message.timestamp.after.max.ms."""
    log_message_timestamp_before_max_ms = LONG("9223372036854775807", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property message.timestamp.before.max.ms."""
    log_message_timestamp_type = STRING("CreateTime", MEDIUM, OneOf(("CreateTime", "LogAppendTime")), mode=CLUSTER_WIDE)
    """Default of the topic property message.timestamp.type."""
    log_preallocate = BOOLEAN("false", MEDIUM, mode=CLUSTER_WIDE, no_effect="segments grow as they are written")
    """Default of the topic property preallocate."""
    log_retention_bytes = LONG("-1", HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property retention.bytes."""
    log_retention_check_interval_ms = LONG("300000", MEDIUM, Range(1))
    """Milliseconds between two looks for segments to delete."""
    log_retention_hours = INT("168", HIGH)
    """Default of the topic property retention.ms, in hours; log.retention.minutes and log.retention.ms go before it."""
    log_retention_minutes = INT(None, HIGH)
    """Default of the topic property retention.ms, in minutes; log.retention.ms goes before it."""
    log_retention_ms = LONG(None, HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property retention.ms."""
    log_roll_hours = INT("168", HIGH, Range(1))
    """Default of the topic property segment.ms, in hours; log.roll.ms goes before it."""
    log_roll_jitter_hours = INT("0", HIGH, Range(0))
    """Default of the topic property segment.jitter.ms, in hours; log.roll.jitter.ms goes before it."""
    log_roll_jitter_ms = LONG(None, HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property segment.jitter.ms."""
    log_roll_ms = LONG(None, HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property segment.ms."""
    log_segment_bytes = INT("1073741824", HIGH, Range(1048576), mode=CLUSTER_WIDE)
    """Default of the topic property segment.bytes."""
    log_segment_delete_delay_ms = LONG("60000", HIGH, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property file.delete.delay.ms."""
    message_max_bytes = INT("1048588", HIGH, Range(0), mode=CLUSTER_WIDE)
    """Default of the topic property max.message.bytes."""
    max_decompressed_message_bytes = INT("2147483639", MEDIUM, Range(1, 2147483639), mode=CLUSTER_WIDE)
    """Default of the topic property max.decompressed.message.bytes."""
    num_recovery_threads_per_data_dir = INT(
        "2", HIGH, Range(1), mode=CLUSTER_WIDE, no_effect="one thread recovers the logs of a directory"
    )
    """Threads that recover logs after a crash."""


class ReplicationProperties(Table):
    """Properties of replicas: how they fetch, when they count as in sync, who leads."""

    alter_log_dirs_replication_quota_window_num = INT("11", LOW, Range(1))
    """Windows that the throttle of moves between log directories is measured over."""
    alter_log_dirs_replication_quota_window_size_seconds = INT("1", LOW, Range(1))
    """Seconds in a window of the throttle of moves between log directories."""
    auto_leader_rebalance_enable = BOOLEAN("true", HIGH)
    """Give leadership back to preferred replicas from time to time."""
    default_replication_factor = INT("1", MEDIUM)
    """Replication factor of topics created automatically or without one."""
    leader_imbalance_check_interval_seconds = LONG("300", HIGH, Range(1))
    """Seconds between two looks at leadership balance."""
    min_insync_replicas = INT("1", HIGH, Range(1), mode=CLUSTER_WIDE)
    """Default of the topic property min.insync.replicas."""
    num_replica_alter_log_dirs_threads = INT(None, HIGH, no_effect="moves are shared out by the event loop")
    """Threads that move replicas between directories."""
    num_replica_fetchers = INT("1", HIGH, Range(1), mode=CLUSTER_WIDE, no_effect="one task fetches from each leader")
    """Fetchers for each broker replicated from."""
    replica_fetch_backoff_ms = INT("1000", MEDIUM, Range(0))
    """Wait after a failed replica fetch, in milliseconds."""
    replica_fetch_max_bytes = INT("1048576", MEDIUM, Range(0))
    """Bytes fetched from one partition by a follower."""
    replica_fetch_min_bytes = INT("1", HIGH)
    """Bytes that a follower's fetch waits for."""
    replica_fetch_response_max_bytes = INT("10485760", MEDIUM, Range(0))
    """Bytes in one response to a follower."""
    replica_fetch_wait_max_ms = INT("500", HIGH)
    """Time that a follower's fetch may wait, in milliseconds."""
    replica_high_watermark_checkpoint_interval_ms = LONG("5000", HIGH)
    """Milliseconds between two writings of the high watermarks."""
    replica_lag_time_max_ms = LONG("30000", HIGH)
    """Time that a follower may be behind before it leaves the ISR, in milliseconds."""
    replica_selector_class = STRING(None, MEDIUM)
    """Callable that chooses the replica that a consumer reads from: the leader without it;
    `org.apache.kafka.common.replica.RackAwareReplicaSelector`, or `python:MODULE:NAME` (KIP-392)."""
    replica_socket_receive_buffer_bytes = INT("65536", HIGH, no_effect="the operating system chooses")
    """Receive buffer of replica fetch sockets, in bytes."""
    replica_socket_timeout_ms = INT("30000", HIGH)
    """Socket timeout of replica fetches, in milliseconds."""
    replication_quota_window_num = INT("11", LOW, Range(1))
    """Windows that replication throttles are measured over."""
    replication_quota_window_size_seconds = INT("1", LOW, Range(1))
    """Seconds in a window of a replication throttle."""
    unclean_leader_election_enable = BOOLEAN("false", HIGH, mode=CLUSTER_WIDE)
    """Default of the topic property unclean.leader.election.enable."""
