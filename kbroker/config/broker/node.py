"""Properties of the node as a process, and of its listeners, connections and requests."""

from __future__ import annotations

from kbroker.config.config_key import REQUIRED, ListOf, OneOf, Range
from kbroker.config.listeners import Listener
from kbroker.config.table import (
    BOOLEAN,
    CLUSTER_WIDE,
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


class NodeProperties(Table):
    """Properties of the node as a process: its identity, its threads, its metrics."""

    background_threads = INT(
        "10", HIGH, Range(1), mode=CLUSTER_WIDE, no_effect="kbroker runs background work in tasks of one event loop"
    )
    """Threads for background work."""
    broker_id = INT("-1", HIGH)
    """Older name of node.id; both must agree when both are given."""
    broker_rack = STRING(None, MEDIUM)
    """Rack (or zone) of this broker, for the placement of replicas."""
    kafka_metrics_polling_interval_secs = INT("10", LOW, Range(1), no_effect="kbroker has no JVM reporters")
    """Polling interval of metrics reporters."""
    kafka_metrics_reporters = LIST("", LOW, ListOf(), no_effect="kbroker has no JVM reporters")
    """JVM classes that report metrics."""
    metric_reporters = LIST("org.apache.kafka.common.metrics.JmxReporter", LOW, ListOf(), mode=CLUSTER_WIDE)
    """Receivers of what clients push, as `python:MODULE:NAME` or `file:/ABSOLUTE/PATH`; without one no client is asked
    for metrics. There is no JMX: Kafka's own `JmxReporter` does nothing."""
    telemetry_max_bytes = INT("1048576", LOW, Range(1))
    """Most bytes of metrics that a client may push at once, as they are sent and when they are decompressed."""
    metrics_num_samples = INT("2", LOW, Range(1), no_effect="kbroker's metrics are not sampled")
    """Samples a metric is computed over."""
    metrics_recording_level = STRING("INFO", LOW, no_effect="kbroker records one level")
    """Detail of metrics recorded."""
    metrics_sample_window_ms = LONG("30000", LOW, Range(1), no_effect="kbroker's metrics are not sampled")
    """Window of one metric sample, in milliseconds."""
    node_id = INT(REQUIRED, HIGH, Range(0))
    """Number of this node, unique in the cluster."""
    num_io_threads = INT("8", HIGH, Range(1), mode=CLUSTER_WIDE, no_effect="kbroker serves requests on one event loop")
    """Threads that serve requests."""
    num_network_threads = INT(
        "3", HIGH, Range(1), mode=CLUSTER_WIDE, no_effect="kbroker serves sockets on one event loop"
    )
    """Threads that read and write sockets."""
    process_roles: frozenset[str] = derived(LIST(REQUIRED, HIGH, ListOf(("broker", "controller"), may_be_empty=False)))
    """The roles of this node: `broker`, `controller`, or both."""
    server_max_startup_time_ms = LONG("9223372036854775807", MEDIUM, Range(0), internal=True)
    """Time that this node may take to come up, in milliseconds; after it, the node ends."""
    unstable_api_versions_enable = BOOLEAN("false", HIGH, internal=True)
    """Serve and advertise versions of APIs that Apache Kafka still changes: InitProducerId 6."""


class NetworkProperties(Table):
    """Properties of listeners, connections and requests."""

    advertised_listeners: tuple[Listener, ...] = derived(LIST(None, HIGH, ListOf(may_be_empty=False, may_be_null=True)))
    """Addresses that clients are told to connect to, one `NAME://host:port` per listener; by default those of
    `listeners`."""
    connections_max_idle_ms = LONG("600000", MEDIUM)
    """Milliseconds after which an idle connection is closed."""
    delete_records_purgatory_purge_interval_requests = INT(
        "1", MEDIUM, no_effect="kbroker removes a waiting request when it finishes"
    )
    """Waiting requests after which finished ones are swept out."""
    fetch_max_bytes = INT("57671680", MEDIUM, Range(1024))
    """Largest fetch response, in bytes, whatever the client asks for; one first batch may exceed it."""
    fetch_purgatory_purge_interval_requests = INT(
        "1000", MEDIUM, no_effect="kbroker removes a waiting request when it finishes"
    )
    """Waiting requests after which finished ones are swept out."""
    inter_broker_listener_name: str = derived(STRING(None, MEDIUM))
    """Listener that brokers use among themselves."""
    listener_security_protocol_map: dict[str, str] = derived(
        STRING("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, mode=PER_BROKER)
    )
    """Security protocol of each listener name, `NAME:PROTOCOL` pairs."""
    listeners: tuple[Listener, ...] = derived(
        LIST("PLAINTEXT://:9092", HIGH, ListOf(may_be_empty=False), mode=PER_BROKER)
    )
    """Addresses to listen on, `NAME://host:port` each; an empty host means all interfaces, port 0 a free one."""
    controller_quota_window_num = INT("11", LOW, Range(1))
    """Windows for which a client may save up changes of topics within its quota."""
    controller_quota_window_size_seconds = INT("1", LOW, Range(1))
    """Seconds in a window of the quota of changes of topics."""
    max_connection_creation_rate = INT("2147483647", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Most new connections in a second; more have to wait. Also for one listener (`listener.name.NAME.`)."""
    max_connections = INT("2147483647", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Most connections at a time, over all addresses. Also for one listener (`listener.name.NAME.`). With several
    listeners that of the brokers (`inter.broker.listener.name`) may have more."""
    max_connections_per_ip = INT("2147483647", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Most connections at a time from one address."""
    max_connections_per_ip_overrides: dict[str, int] = derived(STRING("", MEDIUM, mode=CLUSTER_WIDE))
    """Other limits for single addresses, `address:limit` pairs."""
    max_incremental_fetch_session_cache_slots = INT("1000", MEDIUM, Range(0))
    """Most incremental fetch sessions kept."""
    max_request_partition_size_limit = INT("2000", MEDIUM, Range(1))
    """Most partitions in one answer of DescribeTopicPartitions."""
    producer_purgatory_purge_interval_requests = INT(
        "1000", MEDIUM, no_effect="kbroker removes a waiting request when it finishes"
    )
    """Waiting requests after which finished ones are swept out."""
    queued_max_request_bytes = LONG("-1", MEDIUM)
    """Bytes of requests held at a time before reading stops; -1 leaves it to kbroker's own limit."""
    queued_max_requests = INT(
        "500", HIGH, Range(1), no_effect="kbroker has no request queue; queued.max.request.bytes bounds memory"
    )
    """Requests waiting for a thread before reading stops."""
    quota_window_num = INT("11", LOW, Range(1))
    """Windows that a client quota is measured over."""
    quota_window_size_seconds = INT("1", LOW, Range(1))
    """Seconds in a window of a client quota."""
    request_timeout_ms = INT("30000", HIGH)
    """Time that requests of this node to others may take, in milliseconds."""
    security_inter_broker_protocol = STRING(
        "PLAINTEXT", MEDIUM, OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    )
    """Security protocol among brokers when inter.broker.listener.name is not given."""
    socket_connection_setup_timeout_max_ms = LONG(
        "30000", MEDIUM, no_effect="every attempt has socket.connection.setup.timeout.ms"
    )
    """Longest wait for a connection to another node, in milliseconds."""
    socket_connection_setup_timeout_ms = LONG("10000", MEDIUM)
    """Longest wait for a connection to another voter, in milliseconds."""
    socket_listen_backlog_size = INT("50", MEDIUM, Range(1), no_effect="the operating system chooses")
    """Connections that may wait to be accepted."""
    socket_receive_buffer_bytes = INT("102400", HIGH, no_effect="the operating system chooses")
    """Receive buffer of sockets, in bytes; -1 leaves it to the system."""
    socket_request_max_bytes = INT("104857600", HIGH, Range(1))
    """Largest request that is read, in bytes."""
    socket_send_buffer_bytes = INT(
        "102400", HIGH, no_effect="256 KiB for a peer on the same machine, for others the operating system chooses"
    )
    """Send buffer of sockets, in bytes; -1 leaves it to the system."""
