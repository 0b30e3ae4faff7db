"""Kafka's properties that belong to what kbroker does not have, as tables like those of `kbroker.config.broker`.

A node describes them with Kafka's defaults. One that is set to anything else is never passed over in silence: the node
warns of it or, where the rest would be another cluster than the one that was asked for, does not start; while it runs,
such a change is refused. All is imported when a property is set or described that `kbroker.config.broker` lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.config_key import NOT_EMPTY, ConfigDef, ConfigKey, Range
from kbroker.config.group import GROUP_CONFIGS
from kbroker.config.listeners import LISTENER_PREFIX
from kbroker.config.security import SECURITY_CONFIGS
from kbroker.config.table import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    STRING,
    Table,
)


class TieredStorageProperties(Table, no_effect="kbroker has no tiered storage"):
    """Properties of tiered storage (KIP-405)."""

    follower_fetch_last_tiered_offset_enable = BOOLEAN("false", MEDIUM, mode=CLUSTER_WIDE)
    """Let an empty follower begin at the last offset that is tiered."""
    remote_fetch_max_wait_ms = INT("500", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Milliseconds that a Fetch waits for tiered records."""
    remote_list_offsets_request_timeout_ms = LONG("30000", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Milliseconds that a look-up by timestamp in tiered segments may take."""
    remote_log_index_file_cache_total_size_bytes = LONG("1073741824", LOW, Range(1), mode=CLUSTER_WIDE)
    """Bytes of tiered segments' indexes kept on local disks."""
    remote_log_index_file_cache_ttl_ms = LONG("900000", LOW, Range(-1), internal=True)
    """Milliseconds for which such an index is kept without use."""
    remote_log_manager_copier_thread_pool_size = INT("10", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Threads that copy segments."""
    remote_log_manager_copy_max_bytes_per_second = LONG("9223372036854775807", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Bytes a second that a node copies."""
    remote_log_manager_copy_quota_window_num = INT("11", MEDIUM, Range(1))
    """Windows that copies are measured over for their quota."""
    remote_log_manager_copy_quota_window_size_seconds = INT("1", MEDIUM, Range(1))
    """Seconds in a window of that quota."""
    remote_log_manager_expiration_thread_pool_size = INT("10", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Threads that delete expired segments."""
    remote_log_manager_fetch_max_bytes_per_second = LONG("9223372036854775807", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Bytes a second that a node fetches of tiered segments."""
    remote_log_manager_fetch_quota_window_num = INT("11", MEDIUM, Range(1))
    """Windows that such fetches are measured over for their quota."""
    remote_log_manager_fetch_quota_window_size_seconds = INT("1", MEDIUM, Range(1))
    """Seconds in a window of that quota."""
    remote_log_manager_follower_thread_pool_size = INT("2", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Threads that follow what leaders tier."""
    remote_log_manager_task_interval_ms = LONG("30000", LOW, Range(1))
    """Milliseconds between two rounds of copies and deletions."""
    remote_log_manager_task_retry_backoff_max_ms = LONG("30000", LOW, Range(1), internal=True)
    """Longest wait before a failed round is tried again, in milliseconds."""
    remote_log_manager_task_retry_backoff_ms = LONG("500", LOW, Range(1), internal=True)
    """First wait before a failed round is tried again, in milliseconds."""
    remote_log_manager_task_retry_jitter = DOUBLE("0.2", LOW, Range(0, 0.5), internal=True)
    """Share of random jitter added to these waits."""
    remote_log_manager_thread_pool_size = INT("2", MEDIUM, Range(1))
    """Threads of the scheduler of these rounds."""
    remote_log_metadata_custom_metadata_max_bytes = INT("128", LOW, Range(0))
    """Most bytes of a plugin's own metadata for a segment."""
    remote_log_metadata_manager_class_name = STRING(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM, NOT_EMPTY
    )
    """Java class that keeps the metadata of tiered segments."""
    remote_log_metadata_manager_class_path = STRING(None, MEDIUM)
    """Class path of that class."""
    remote_log_metadata_manager_impl_prefix = STRING("rlmm.config.", MEDIUM, NOT_EMPTY)
    """Beginning of the names of that class's own properties."""
    remote_log_metadata_manager_listener_name = STRING(None, MEDIUM, NOT_EMPTY)
    """Listener by which that class reaches the brokers."""
    remote_log_reader_max_pending_tasks = INT("100", MEDIUM, Range(1))
    """Most reads of tiered segments that wait."""
    remote_log_reader_threads = INT("10", MEDIUM, Range(1), mode=CLUSTER_WIDE)
    """Threads that read tiered segments."""
    remote_log_storage_manager_class_name = STRING(None, MEDIUM, NOT_EMPTY)
    """Java class that stores tiered segments."""
    remote_log_storage_manager_class_path = STRING(None, MEDIUM)
    """Class path of that class."""
    remote_log_storage_manager_impl_prefix = STRING("rsm.config.", MEDIUM, NOT_EMPTY)
    """Beginning of the names of that class's own properties."""
    remote_log_storage_system_enable = BOOLEAN("false", MEDIUM)
    """Use tiered storage."""
    log_remote_copy_lag_bytes = LONG("-1", MEDIUM, Range(-1), mode=CLUSTER_WIDE)
    """Default of the topic property remote.copy.lag.bytes."""
    log_remote_copy_lag_ms = LONG("0", MEDIUM, Range(-1), mode=CLUSTER_WIDE)
    """Default of the topic property remote.copy.lag.ms."""


class JvmProperties(Table, no_effect="kbroker's TLS is OpenSSL's, and there is no JVM"):
    """Properties of TLS that only a JVM could follow."""

    security_providers = STRING(None, LOW)
    """Java classes that add security providers to the JVM."""
    ssl_engine_factory_class = CLASS(None, LOW, mode=PER_BROKER)
    """Java class that makes TLS engines."""
    ssl_keymanager_algorithm = STRING("SunX509", MEDIUM, mode=PER_BROKER)
    """Algorithm of the JVM's key manager."""
    ssl_provider = STRING(None, MEDIUM, mode=PER_BROKER)
    """JVM's security provider for TLS connections."""
    ssl_secure_random_implementation = STRING(None, LOW, mode=PER_BROKER)
    """Random generator of the JVM for TLS."""
    ssl_trustmanager_algorithm = STRING("PKIX", MEDIUM, mode=PER_BROKER)
    """Algorithm of the JVM's trust manager."""


class CoordinatorThreadProperties(Table, no_effect="kbroker's coordinators run on the one event loop"):
    """Properties of threads that coordinators would have."""

    share_coordinator_cached_buffer_max_bytes = INT("1048588", MEDIUM, Range(524288), mode=CLUSTER_WIDE)
    """Bytes of a buffer that the coordinator keeps to write the next records with."""
    share_coordinator_load_buffer_size = INT("5242880", HIGH, Range(1))
    """Bytes read at once when the coordinator loads its state."""
    share_coordinator_threads = INT("1", MEDIUM, Range(1))
    """Threads of the coordinator."""
    group_share_assignor_offload_enable = BOOLEAN("true", MEDIUM, mode=CLUSTER_WIDE, internal=True)
    """Make assignments beside the coordinator's thread."""
    group_streams_assignor_offload_enable = BOOLEAN("true", MEDIUM, mode=CLUSTER_WIDE, internal=True)
    """Make assignments beside the coordinator's thread."""


class KafkaTestProperties(Table, no_effect="it is there for Apache Kafka's own tests"):
    """Properties for tests."""

    internal_metadata_delete_delay_millis = LONG("60000", LOW, internal=True)
    """Milliseconds before a segment of the metadata log leaves the disk, for Apache Kafka's own tests."""
    internal_metadata_log_segment_bytes = INT(None, LOW, internal=True)
    """Size of a segment of the metadata log, for Apache Kafka's own tests."""
    internal_metadata_max_batch_size_in_bytes = INT("8388608", LOW, internal=True)
    """Size of a batch of the metadata log, for Apache Kafka's own tests."""
    unclean_leader_election_interval_ms = LONG("300000", MEDIUM, Range(1), internal=True)
    """Milliseconds between two looks for partitions that need an unclean election."""


class OtherProperties(Table):
    """Properties of single features."""

    unstable_feature_versions_enable = BOOLEAN(
        "false", HIGH, internal=True, no_effect="no level of a feature is unstable in kbroker"
    )
    """Allow levels of features that Apache Kafka still changes."""
    group_consumer_assignor_offload_enable = BOOLEAN(
        "true", MEDIUM, mode=CLUSTER_WIDE, internal=True, no_effect="assignments are made on the event loop"
    )
    """Make assignments of consumer groups beside the coordinator's thread."""
    controller_performance_always_log_threshold_ms = LONG(
        "2000", MEDIUM, Range(0), internal=True, no_effect="kbroker does not report slow events of its controller"
    )
    """Milliseconds from which an event of the controller is always reported."""
    controller_performance_sample_period_ms = LONG(
        "60000", MEDIUM, Range(100), internal=True, no_effect="kbroker does not report slow events of its controller"
    )
    """Milliseconds of which the slowest events of the controller are reported."""
    sasl_client_callback_handler_class = CLASS(None, MEDIUM, no_effect="kbroker loads no Java classes")
    """Java class that answers callbacks of SASL clients."""
    sasl_login_class = CLASS(None, MEDIUM, no_effect="kbroker loads no Java classes")
    """Java class that logs in."""
    group_share_persister_class_name = STRING(
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        MEDIUM,
        internal=True,
        no_effect="a Java class; kbroker has its own",
    )
    """Java class that keeps the state of deliveries."""
    group_share_dlq_manager_class_name = STRING(
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        MEDIUM,
        internal=True,
        no_effect="a Java class; kbroker has its own",
    )
    """Java class that writes to dead-letter topics."""
    share_fetch_purgatory_purge_interval_requests = INT(
        "1000", MEDIUM, no_effect="a request that is answered leaves at once"
    )
    """Waiting requests after which finished ones are swept out."""
    group_streams_max_warmup_replicas = INT(
        "20", MEDIUM, Range(0), internal=True, no_effect="no warm-up tasks are assigned, as in Apache Kafka 4.4.0"
    )
    """Upper limit of a group's own number of warm-up tasks."""
    group_streams_num_warmup_replicas = INT(
        "2", MEDIUM, Range(0), internal=True, no_effect="no warm-up tasks are assigned, as in Apache Kafka 4.4.0"
    )
    """Warm-up tasks of a group at most."""


class AbsentGroupProperties(Table):
    """Properties of a group."""

    consumer_assignor_offload_enable = BOOLEAN(
        "true", MEDIUM, internal=True, no_effect="assignments are made on the event loop"
    )
    """Make assignments of the group beside the coordinator's thread."""
    share_assignor_offload_enable = BOOLEAN(
        "true", MEDIUM, internal=True, no_effect="assignments are made on the event loop"
    )
    """Make assignments beside the coordinator's thread."""
    streams_assignor_offload_enable = BOOLEAN(
        "true", MEDIUM, internal=True, no_effect="kbroker's coordinators run on the one event loop"
    )
    """Make assignments beside the coordinator's thread."""
    streams_num_warmup_replicas = INT(
        "2", MEDIUM, Range(0), internal=True, no_effect="no warm-up tasks are assigned, as in Apache Kafka 4.4.0"
    )
    """Warm-up tasks of the group at most."""


ABSENT_BROKER_CONFIGS = ConfigDef(
    "broker",
    [
        *TieredStorageProperties.KEYS,
        *JvmProperties.KEYS,
        *CoordinatorThreadProperties.KEYS,
        *KafkaTestProperties.KEYS,
        *OtherProperties.KEYS,
    ],
)
"""``no_effect`` says what is missing."""

ABSENT_GROUP_CONFIGS = ConfigDef("group", AbsentGroupProperties.KEYS)
"""Those of groups, which are described and never set."""

ALL_BROKER_CONFIGS = ConfigDef(
    "broker", [*BROKER_CONFIGS.values(), *SECURITY_CONFIGS.values(), *ABSENT_BROKER_CONFIGS.values()]
)
"""Every property of a node that Apache Kafka has."""

ALL_GROUP_CONFIGS = ConfigDef("group", [*GROUP_CONFIGS.values(), *ABSENT_GROUP_CONFIGS.values()])
"""Every property of a group that Apache Kafka has."""

REFUSED: Mapping[str, str] = {"remote.log.storage.system.enable": "there is no tiered storage"}
"""Properties that Kafka acts on in a way that must not be missing, and why a node does not start with them."""


def absent_key(name: str) -> ConfigKey | None:
    """The key of a property that kbroker lacks, also under ``listener.name.<listener>[.<mechanism>].``; or None."""
    found = LISTENER_PREFIX.match(name)
    if found is None:
        return ABSENT_BROKER_CONFIGS.get(name)
    rest = name[found.end() :]
    return ABSENT_BROKER_CONFIGS.get(rest) or ABSENT_BROKER_CONFIGS.get(rest.partition(".")[2])


def is_default(key: ConfigKey, text: str) -> bool:
    """Whether ``text`` sets nothing but the default; :class:`InvalidConfig` if it is no value at all."""
    if not text.strip() and not key.default:
        return True
    return bool(key.parse(text) == key.default_value())


def set_otherwise(properties: Mapping[str, str], names: Iterable[str]) -> dict[str, ConfigKey]:
    """The ``names`` of absent properties that are not set to their defaults; ``InvalidConfig`` as above."""
    found = {}
    for name in names:
        key = absent_key(name)
        if key is not None and not is_default(key, properties[name]):
            found[name] = key
    return found
