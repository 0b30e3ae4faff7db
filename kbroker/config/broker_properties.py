"""The typed form of a node's ``server.properties``: one attribute for each property that kbroker acts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kbroker.config.listeners import Listener, QuorumVoter


class BrokerProperties:
    """A node's properties, typed; ``num.partitions`` is the field ``num_partitions``, and so on.

    Fields that end in ``_ms`` are milliseconds. :data:`kbroker.config.BROKER_CONFIGS` documents each.
    Immutable; no dataclass, whose generated methods would cost a tenth of the start-up time at this number of fields.
    ``BrokerConfig`` makes them from a file and has them checked.
    """

    raw: dict[str, str]
    """The properties that the user set, by name, unknown names included."""
    values: dict[str, Any]
    """Every known property, typed, by name, defaults included."""
    unknown: tuple[str, ...]
    """Names in ``raw`` that neither kbroker nor Kafka knows."""
    absent: Mapping[str, str]
    """Names in ``raw`` with another value than the default, of features that kbroker does not have -> the feature."""
    without_effect: tuple[str, ...]
    """Names in ``raw`` that Kafka acts on and kbroker does not."""

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    advertised_listeners: tuple[Listener, ...]
    alter_log_dirs_replication_quota_window_num: int
    alter_log_dirs_replication_quota_window_size_seconds: int
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_listener_names: tuple[str, ...]
    controller_quorum_append_linger_ms: int
    controller_quorum_auto_join_enable: bool
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_voters: tuple[QuorumVoter, ...]
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    controller_socket_timeout_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_append_linger_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    group_share_assignment_interval_ms: int
    group_share_assignors: tuple[str, ...]
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_max_delivery_count_limit: int
    group_share_max_heartbeat_interval_ms: int
    group_share_max_partition_max_record_locks: int
    group_share_max_record_lock_duration_ms: int
    group_share_max_session_timeout_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_min_assignment_interval_ms: int
    group_share_min_delivery_count_limit: int
    group_share_min_heartbeat_interval_ms: int
    group_share_min_partition_max_record_locks: int
    group_share_min_record_lock_duration_ms: int
    group_share_min_session_timeout_ms: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int
    group_streams_acceptable_recovery_lag: int
    group_streams_assignment_interval_ms: int
    group_streams_assignors: tuple[str, ...]
    group_streams_heartbeat_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_max_size: int
    group_streams_max_standby_replicas: int
    group_streams_min_assignment_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_min_task_offset_interval_ms: int
    group_streams_num_standby_replicas: int
    group_streams_rack_aware_assignment_tags: tuple[str, ...]
    group_streams_session_timeout_ms: int
    group_streams_task_offset_interval_ms: int
    initial_broker_registration_timeout_ms: int
    inter_broker_listener_name: str
    leader_imbalance_check_interval_seconds: int
    listener_security_protocol_map: dict[str, str]
    listeners: tuple[Listener, ...]
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_delete_retention_ms: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_threads: int
    metric_reporters: list[str]
    telemetry_max_bytes: int
    log_cleanup_policy: tuple[str, ...]
    log_dir_failure_timeout_ms: int
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]
    """Those of ``log_dirs`` that get no new partitions."""
    log_flush_interval_messages: int
    log_flush_interval_ms: int | None
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_initial_task_delay_ms: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_preallocate: bool
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int | None
    log_roll_hours: int
    log_roll_jitter_hours: int
    log_roll_jitter_ms: int | None
    log_roll_ms: int | None
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    max_decompressed_message_bytes: int
    metadata_log_dir: str
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    min_insync_replicas: int
    node_id: int
    num_partitions: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: frozenset[str]
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: int
    replica_socket_timeout_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    request_timeout_ms: int
    server_max_startup_time_ms: int
    share_coordinator_append_linger_ms: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    unstable_api_versions_enable: bool
    # Derived, as Kafka derives them.
    advertised_controller_listeners: tuple[Listener, ...]
    _defaults_for_topics: dict[str, Any]

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a node's properties do not change")

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether the node takes part in the metadata quorum."""
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients and brokers use."""
        return tuple(entry for entry in self.listeners if entry.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners that the controller answers on."""
        return tuple(entry for entry in self.listeners if entry.name in self.controller_listener_names)

    def topic_defaults(self) -> dict[str, Any]:
        """Every topic property, typed, as a topic without own properties has it."""
        return dict(self._defaults_for_topics)
