"""Properties of the metadata quorum, of its log, and of brokers that register with it."""

from __future__ import annotations

from kbroker.config.config_key import REQUIRED, ListOf, Range
from kbroker.config.listeners import QuorumVoter
from kbroker.config.table import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MEDIUM, STRING, Table, derived


class QuorumProperties(Table):
    """Properties of the metadata quorum, of its log, and of brokers that register with it."""

    broker_heartbeat_interval_ms = INT("2000", MEDIUM)
    """Milliseconds between a broker's heartbeats to the controller."""
    broker_session_timeout_ms = INT("9000", MEDIUM)
    """Milliseconds without a heartbeat after which the controller fences a broker."""
    controlled_shutdown_enable = BOOLEAN("true", MEDIUM)
    """Hand over leadership before stopping."""
    controller_listener_names = LIST(REQUIRED, HIGH, ListOf(may_be_empty=False))
    """Listeners that the controller answers on; the first one is used for talking to it."""
    controller_quorum_append_linger_ms = INT(
        "25", MEDIUM, Range(0), no_effect="changes are appended at once, and those that come together share a flush"
    )
    """Time that the leader of the metadata quorum gathers records before writing, in milliseconds."""
    controller_quorum_auto_join_enable = BOOLEAN("false", LOW)
    """Let a new controller add itself to the voters."""
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...] = derived(LIST("", HIGH, ListOf()))
    """Addresses `host:port` at which controllers are first looked for."""
    controller_quorum_election_backoff_max_ms = INT("1000", HIGH, Range(0))
    """Longest wait between two elections of the metadata quorum, in milliseconds."""
    controller_quorum_election_timeout_ms = INT("1000", HIGH, Range(0))
    """Time that a candidate waits for votes, in milliseconds."""
    controller_quorum_fetch_max_bytes = INT("1048576", LOW, Range(1))
    """Largest fetch of metadata records, in bytes."""
    controller_quorum_fetch_snapshot_max_bytes = INT("1048576", LOW, Range(1))
    """Largest piece of a metadata snapshot in one response, in bytes."""
    controller_quorum_fetch_timeout_ms = INT("2000", HIGH, Range(0))
    """Milliseconds without the leader's answer after which an election begins."""
    controller_quorum_request_timeout_ms = INT("2000", MEDIUM, Range(0))
    """Time that a request of the metadata quorum may take, in milliseconds."""
    controller_quorum_retry_backoff_ms = INT("20", LOW, Range(0))
    """Wait before a failed request of the metadata quorum is sent again, in milliseconds."""
    controller_quorum_voters: tuple[QuorumVoter, ...] = derived(LIST("", HIGH, ListOf()))
    """Fixed voters of the metadata quorum, `id@host:port` each; leave it out for a quorum whose voters are in its
    log."""
    controller_socket_timeout_ms = INT(
        "30000", MEDIUM, no_effect="requests to the controller have request.timeout.ms, heartbeats half the session's"
    )
    """Socket timeout of the channel from controller to brokers, in milliseconds."""
    initial_broker_registration_timeout_ms = INT("60000", MEDIUM)
    """Time that a starting broker tries to register with the controller, in milliseconds."""
    metadata_log_dir: str = derived(STRING(None, HIGH))
    """Directory of the metadata log; by default the first of log.dirs."""
    metadata_log_max_record_bytes_between_snapshots = LONG("20971520", HIGH, Range(1))
    """Bytes of metadata records after which a snapshot is taken."""
    metadata_log_max_snapshot_interval_ms = LONG("3600000", HIGH, Range(0))
    """Longest time between two metadata snapshots, in milliseconds; 0 for snapshots by size alone."""
    metadata_log_segment_bytes = INT("1073741824", HIGH, Range(8388608))
    """Size at which the metadata log begins a new segment, in bytes."""
    metadata_log_segment_ms = LONG(
        "604800000", HIGH, no_effect="segments of the metadata log roll by size, or after a week"
    )
    """Age at which the metadata log begins a new segment, in milliseconds."""
    metadata_max_idle_interval_ms = INT("500", LOW, Range(0))
    """Interval at which an active controller that other nodes follow writes a record without content, in milliseconds;
    0 for never."""
    metadata_max_retention_bytes = LONG(
        "104857600", HIGH, no_effect="a snapshot takes the place of all before it at once"
    )
    """Size of metadata log and snapshots above which old ones are deleted, in bytes."""
    metadata_max_retention_ms = LONG("604800000", HIGH, no_effect="a snapshot takes the place of all before it at once")
    """Age of metadata segments and snapshots above which they are deleted, in milliseconds."""
