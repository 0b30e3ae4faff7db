"""Properties of coordinators: of groups of all types, and of transactions."""

from __future__ import annotations

from kbroker.config.config_key import ListOf, OneOf, Range
from kbroker.config.table import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LIST, LONG, LOW, MEDIUM, SHORT, STRING, Table


class GroupProperties(Table):
    """Properties of consumer groups and their offsets."""

    group_consumer_assignment_interval_ms = INT("1000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Shortest time between two assignments of a consumer group, in milliseconds."""
    group_consumer_assignors = LIST("uniform,range", MEDIUM, ListOf(may_be_empty=False))
    """Server-side assignors offered to consumer groups: uniform, range, and callables as `python:MODULE:NAME`; the
    first is the default."""
    group_consumer_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Heartbeat interval given to members of consumer groups, in milliseconds; a second, if that is less, while a
    member waits for partitions."""
    group_consumer_max_assignment_interval_ms = INT("15000", MEDIUM, Range(0))
    """Upper limit of a group's own assignment interval, in milliseconds."""
    group_consumer_max_heartbeat_interval_ms = INT("15000", MEDIUM, Range(1))
    """Upper limit of a group's own heartbeat interval, in milliseconds."""
    group_consumer_max_session_timeout_ms = INT("60000", MEDIUM, Range(1))
    """Upper limit of a group's own session timeout, in milliseconds."""
    group_consumer_max_size = INT("2147483647", MEDIUM, Range(1))
    """Most members in one consumer group."""
    group_consumer_migration_policy = STRING(
        "bidirectional", MEDIUM, OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True)
    )
    """Allowed changes of a group with members: from the classic to the consumer protocol (UPGRADE), back
    (DOWNGRADE), both (BIDIRECTIONAL) or neither (DISABLED). Empty groups may always change."""
    group_consumer_min_assignment_interval_ms = INT("0", MEDIUM, Range(0))
    """Lower limit of a group's own assignment interval, in milliseconds."""
    group_consumer_min_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Lower limit of a group's own heartbeat interval, in milliseconds."""
    group_consumer_min_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Lower limit of a group's own session timeout, in milliseconds."""
    group_consumer_regex_refresh_interval_ms = INT("600000", MEDIUM, Range(10_000), internal=True)
    """Interval at which the topics that match a consumer group's patterns are looked up anew, in milliseconds."""
    group_consumer_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of its consumer group, in milliseconds."""
    group_coordinator_append_linger_ms = INT("-1", MEDIUM, Range(-1))
    """Time that the group coordinator gathers commits of offsets, in milliseconds; -1 gathers what comes together and
    waits for nothing, 0 gathers nothing. Other writes never wait."""
    group_coordinator_background_threads = INT(
        "2", HIGH, Range(1), no_effect="kbroker's coordinators run on the one event loop"
    )
    """Threads for what the group coordinator does beside requests."""
    group_coordinator_cached_buffer_max_bytes = INT(
        "1048588", MEDIUM, Range(524288), mode=CLUSTER_WIDE, no_effect="kbroker's coordinators keep no buffers"
    )
    """Bytes of a buffer that the group coordinator keeps to write the next records with."""
    group_coordinator_rebalance_protocols = LIST(
        "classic,consumer,streams", MEDIUM, ListOf(("consumer", "classic", "share", "streams"), may_be_empty=False)
    )
    """Group protocols that are served, of classic, which must be there, consumer (KIP-848) and streams (KIP-1071);
    share groups (KIP-932) are a matter of the feature `share.version`."""
    group_coordinator_threads = INT("4", HIGH, Range(1), no_effect="kbroker's coordinators run on the one event loop")
    """Threads of the group coordinator."""
    group_initial_rebalance_delay_ms = INT("3000", MEDIUM)
    """Time that a new classic group waits for members before its first rebalance, in milliseconds."""
    group_max_session_timeout_ms = INT("1800000", MEDIUM)
    """Longest session timeout that a classic member may ask for, in milliseconds."""
    group_max_size = INT("2147483647", MEDIUM, Range(1))
    """Most members in one classic group."""
    group_min_session_timeout_ms = INT("6000", MEDIUM)
    """Shortest session timeout that a classic member may ask for, in milliseconds."""
    offset_metadata_max_bytes = INT("4096", HIGH)
    """Largest metadata text that a committed offset may carry, in bytes."""
    offsets_commit_timeout_ms = INT("5000", HIGH, Range(1), no_effect="a commit waits as long as its client does")
    """Time that a commit waits for the offsets topic's replicas, in milliseconds."""
    offsets_load_buffer_size = INT(
        "5242880", HIGH, Range(1), no_effect="a coordinator loads with reads of its own size"
    )
    """Bytes read at a time when a coordinator loads offsets."""
    offsets_retention_check_interval_ms = LONG("600000", HIGH, Range(1))
    """Milliseconds between two looks for expired offsets."""
    offsets_retention_minutes = INT("10080", HIGH, Range(1))
    """Minutes that offsets of an empty group are kept."""
    offsets_topic_compression_codec = INT("0", HIGH)
    """Compression of groups and offsets, as the number of the codec (1 gzip, 2 snappy, 3 lz4, 4 zstd): a group may then
    be larger than `max.message.bytes` of the topic."""
    offsets_topic_num_partitions = INT("50", HIGH, Range(1))
    """Partitions of the offsets topic."""
    offsets_topic_replication_factor = SHORT("3", HIGH, Range(1))
    """Replication factor of the offsets topic."""
    offsets_topic_segment_bytes = INT("104857600", HIGH, Range(1))
    """Segment size of the offsets topic, in bytes."""


class ShareGroupProperties(Table):
    """Properties of share groups and of the share coordinator (KIP-932)."""

    errors_deadletterqueue_auto_create_topics_enable = BOOLEAN("false", MEDIUM, mode=CLUSTER_WIDE)
    """Create the dead-letter topics that share groups name."""
    errors_deadletterqueue_topic_name_prefix = STRING("dlq.", MEDIUM, mode=CLUSTER_WIDE)
    """Beginning that the name of a dead-letter topic must have."""
    group_share_assignment_interval_ms = INT("1000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Shortest time between two assignments of a share group, in milliseconds."""
    group_share_assignors = LIST("simple", MEDIUM, ListOf(may_be_empty=False))
    """The assignor of share groups: simple, or a callable as `python:MODULE:NAME`."""
    group_share_delivery_count_limit = INT("5", MEDIUM, Range(2, 10))
    """Times that a record is delivered at most."""
    group_share_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Heartbeat interval given to members, in milliseconds."""
    group_share_initialize_retry_interval_ms = INT("30000", LOW, Range(1), internal=True)
    """Milliseconds after which the state of a partition is set up once more."""
    group_share_max_assignment_interval_ms = INT("15000", MEDIUM, Range(0))
    """Upper limit of a group's own assignment interval, in milliseconds."""
    group_share_max_delivery_count_limit = INT("10", MEDIUM, Range(5, 25))
    """Upper limit of a group's own limit of deliveries."""
    group_share_max_heartbeat_interval_ms = INT("15000", MEDIUM, Range(1))
    """Upper limit of a group's own heartbeat interval, in milliseconds."""
    group_share_max_partition_max_record_locks = INT("4000", MEDIUM, Range(2000, 10000))
    """Upper limit of a group's own limit of records in delivery."""
    group_share_max_record_lock_duration_ms = INT("60000", MEDIUM, Range(30000, 3600000))
    """Upper limit of a group's own time to process a record, in milliseconds."""
    group_share_max_session_timeout_ms = INT("60000", MEDIUM, Range(1))
    """Upper limit of a group's own session timeout, in milliseconds."""
    group_share_max_share_sessions = INT("2000", MEDIUM, Range(1))
    """Most share sessions of a broker."""
    group_share_max_size = INT("200", MEDIUM, Range(1, 1000))
    """Most members in one share group."""
    group_share_min_assignment_interval_ms = INT("0", MEDIUM, Range(0))
    """Lower limit of a group's own assignment interval, in milliseconds."""
    group_share_min_delivery_count_limit = INT("2", MEDIUM, Range(2, 5))
    """Lower limit of a group's own limit of deliveries."""
    group_share_min_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Lower limit of a group's own heartbeat interval, in milliseconds."""
    group_share_min_partition_max_record_locks = INT("100", MEDIUM, Range(100, 2000))
    """Lower limit of a group's own limit of records in delivery."""
    group_share_min_record_lock_duration_ms = INT("15000", MEDIUM, Range(1000, 30000))
    """Lower limit of a group's own time to process a record, in milliseconds."""
    group_share_min_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Lower limit of a group's own session timeout, in milliseconds."""
    group_share_partition_max_record_locks = INT("2000", MEDIUM, Range(100, 10000))
    """Most records of a partition that are in delivery."""
    group_share_record_lock_duration_ms = INT("30000", MEDIUM, Range(1000, 3600000))
    """Milliseconds that a member has to process a record."""
    group_share_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of its group, in milliseconds."""
    share_coordinator_append_linger_ms = INT("-1", MEDIUM, Range(-1))
    """Time that the share coordinator gathers changes of states, in milliseconds; 0 and -1 gather nothing. Changes of a
    share partition that come while others of it are written go together anyway."""
    share_coordinator_cold_partition_snapshot_interval_ms = INT("300000", LOW, Range(1), internal=True)
    """Milliseconds after which the state of an idle partition is written as a whole."""
    share_coordinator_snapshot_update_records_per_snapshot = INT("500", MEDIUM, Range(0, 500))
    """Changes after which the state of a partition is written as a whole."""
    share_coordinator_state_topic_compression_codec = INT("0", HIGH)
    """Compression of the states of share partitions, as the codec's number (1 gzip, 2 snappy, 3 lz4, 4 zstd)."""
    share_coordinator_state_topic_num_partitions = INT("50", HIGH, Range(1))
    """Partitions of the topic `__share_group_state`."""
    share_coordinator_state_topic_prune_interval_ms = INT("300000", LOW, Range(1), internal=True)
    """Milliseconds between two deletions of old records of that topic."""
    share_coordinator_state_topic_segment_bytes = INT("104857600", HIGH, Range(1))
    """Size of that topic's segments."""
    share_coordinator_write_timeout_ms = INT("5000", HIGH, Range(1))
    """Milliseconds that a write of the coordinator may take."""
    share_coordinator_state_topic_min_isr = SHORT("2", HIGH, Range(1))
    """min.insync.replicas of the share state topic."""
    share_coordinator_state_topic_replication_factor = SHORT("3", HIGH, Range(1))
    """Replication factor of the share state topic."""


class StreamsGroupProperties(Table):
    """Properties of streams groups (KIP-1071)."""

    group_streams_acceptable_recovery_lag = LONG("10000", MEDIUM, Range(0), internal=True)
    """Offsets that a warm-up task may lack to count as caught up."""
    group_streams_assignment_interval_ms = INT("1000", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Shortest time between two assignments of a streams group, in milliseconds."""
    group_streams_assignors = LIST("sticky", MEDIUM, ListOf(may_be_empty=False))
    """Assignors of tasks offered to streams groups: sticky, and callables as `python:MODULE:NAME`; the first is the
    default."""
    group_streams_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Heartbeat interval given to members, in milliseconds."""
    group_streams_initial_rebalance_delay_ms = INT("3000", MEDIUM, Range(0))
    """Milliseconds for which a new group waits for more members."""
    group_streams_max_assignment_interval_ms = INT("15000", MEDIUM, Range(0))
    """Upper limit of a group's own assignment interval, in milliseconds."""
    group_streams_max_heartbeat_interval_ms = INT("15000", MEDIUM, Range(1))
    """Upper limit of a group's own heartbeat interval, in milliseconds."""
    group_streams_max_session_timeout_ms = INT("60000", MEDIUM, Range(1))
    """Upper limit of a group's own session timeout, in milliseconds."""
    group_streams_max_size = INT("2147483647", MEDIUM, Range(1))
    """Most members in one streams group."""
    group_streams_max_standby_replicas = INT("2", MEDIUM, Range(0))
    """Upper limit of a group's own number of standby replicas."""
    group_streams_min_assignment_interval_ms = INT("0", MEDIUM, Range(0))
    """Lower limit of a group's own assignment interval, in milliseconds."""
    group_streams_min_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Lower limit of a group's own heartbeat interval, in milliseconds."""
    group_streams_min_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Lower limit of a group's own session timeout, in milliseconds."""
    group_streams_min_task_offset_interval_ms = INT("15000", MEDIUM, Range(1), internal=True)
    """Lower limit of a group's own interval of task offsets, in milliseconds."""
    group_streams_num_standby_replicas = INT("0", MEDIUM, Range(0))
    """Standby replicas of each task."""
    group_streams_rack_aware_assignment_tags = LIST("", LOW)
    """Client tags by which standby tasks are spread."""
    group_streams_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of its group, in milliseconds."""
    group_streams_task_offset_interval_ms = INT("60000", MEDIUM, Range(1), internal=True)
    """Milliseconds between two reports of task offsets."""


class TransactionProperties(Table):
    """Properties of transactions and idempotent producers."""

    add_partitions_to_txn_retry_backoff_max_ms = INT("100", HIGH, Range(0))
    """Time, in milliseconds, that a Produce request of a new transaction waits at most for the producer's last one to
    be complete."""
    add_partitions_to_txn_retry_backoff_ms = INT("20", HIGH, Range(1))
    """Milliseconds between two looks whether the last transaction of a producer is complete."""
    producer_id_expiration_check_interval_ms = INT("600000", LOW, Range(1), internal=True)
    """Milliseconds between two looks for idle producer ids."""
    producer_id_expiration_ms = INT("86400000", LOW, Range(1), mode=CLUSTER_WIDE)
    """Idle time after which a partition forgets a producer id, in milliseconds."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms = INT("10000", LOW, Range(1))
    """Milliseconds between two looks for transactions out of time."""
    transaction_max_timeout_ms = INT("900000", HIGH, Range(1))
    """Longest transaction timeout that a producer may ask for, in milliseconds."""
    transaction_partition_verification_enable = BOOLEAN("true", LOW, mode=CLUSTER_WIDE)
    """Check with the coordinator that a partition belongs to the transaction before it is written to."""
    transaction_remove_expired_transaction_cleanup_interval_ms = INT("3600000", LOW, Range(1))
    """Milliseconds between two looks for expired transactional ids."""
    transaction_state_log_load_buffer_size = INT(
        "5242880", HIGH, Range(1), no_effect="a coordinator loads with reads of its own size"
    )
    """Bytes read at a time when a coordinator loads transactions."""
    transaction_state_log_min_isr = INT("2", HIGH, Range(1))
    """min.insync.replicas of the transaction topic."""
    transaction_state_log_num_partitions = INT("50", HIGH, Range(1))
    """Partitions of the transaction topic."""
    transaction_state_log_replication_factor = SHORT("3", HIGH, Range(1))
    """Replication factor of the transaction topic."""
    transaction_state_log_segment_bytes = INT("104857600", HIGH, Range(1))
    """Segment size of the transaction topic, in bytes."""
    transaction_two_phase_commit_enable = BOOLEAN("false", LOW)
    """Allow producers that take part in two-phase commit, whose transactions have no timeout. They ask with
    InitProducerId 6, which is served with `unstable.api.versions.enable` only."""
    transactional_id_expiration_ms = INT("604800000", HIGH, Range(1))
    """Idle time after which a transactional id is forgotten, in milliseconds."""
