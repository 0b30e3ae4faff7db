"""A node's configuration: the typed, checked form of its ``server.properties``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.broker_checks import check
from kbroker.config.definition import ConfigType, InvalidConfig
from kbroker.config.listeners import (
    Listener,
    QuorumVoter,
    check_ports,
    parse_host_port,
    parse_listeners,
    parse_security_protocol_map,
    parse_voters,
)
from kbroker.config.topic_values import default_topic_values, effective_topic_values
from kbroker.errors import FatalError

_REFUSED = {
    "authorizer.class.name": "there is no authorizer yet, and running open in spite of it would be dangerous",
    "config.providers": "there are no config providers",
    "create.topic.policy.class.name": "there are no policy plugins",
    "alter.config.policy.class.name": "there are no policy plugins",
    "client.quota.callback.class": "there are no quota plugins",
    "remote.log.storage.system.enable": "there is no tiered storage",
}
"""Properties that Kafka acts on in a way that must not be silently missing, and why kbroker refuses them."""

_SECRET_WORDS = ("password", "secret", "jaas", "passphrase", "keystore.key", "certificate.chain")


class BrokerConfig:
    """A node's properties, typed; ``num.partitions`` is the field ``num_partitions``, and so on.

    Fields that end in ``_ms`` are milliseconds. :data:`kbroker.config.BROKER_CONFIGS` documents each.
    Made by :meth:`from_properties` only, which checks them. Immutable; no dataclass, whose generated
    methods would cost a tenth of the start-up time at this number of fields.
    """

    raw: dict[str, str]
    """What the user set, by name, unknown names included."""
    values: dict[str, Any]
    """Every known property, typed, by name, defaults included."""
    unknown: tuple[str, ...]
    """Names in ``raw`` that kbroker does not know."""
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
    log_cleanup_policy: tuple[str, ...]
    log_dir_failure_timeout_ms: int
    log_dirs: tuple[str, ...]
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
    # Derived, as Kafka derives them.
    advertised_controller_listeners: tuple[Listener, ...]
    _defaults_for_topics: dict[str, Any]

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a BrokerConfig does not change")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse and check; :class:`FatalError` with one line that names the property."""
        raw = {name: str(value) for name, value in properties.items()}
        try:
            values = _parse(raw)
        except InvalidConfig as error:
            raise FatalError(error.message) from error
        given = dict(values)
        derived = _derive(raw, given)
        names = cls.__annotations__
        typed: dict[str, Any] = {}
        for name, value in given.items():
            attribute = name.replace(".", "_")
            if attribute in names:
                typed[attribute] = tuple(value) if isinstance(value, list) else value
        topic_defaults = default_topic_values(values)
        known = BROKER_CONFIGS
        config = cls(
            typed
            | derived
            | {
                "raw": raw,
                "values": values,
                "unknown": tuple(sorted(name for name in raw if name not in known)),
                "without_effect": tuple(sorted(name for name in raw if name in known and known[name].no_effect)),
                "_defaults_for_topics": topic_defaults,
            }
        )
        check(config)
        return config

    def with_properties(self, changes: Mapping[str, str]) -> BrokerConfig:
        """The same with some properties set otherwise."""
        return self.from_properties(self.raw | dict(changes))

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

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={redact(name, value)}" for name, value in sorted(self.raw.items()))
        return f"BrokerConfig({shown})"


def redact(name: str, value: str) -> str:
    """The value, or ``[hidden]`` when the property may hold a secret (known as one, or by its name)."""
    key = BROKER_CONFIGS.get(name)
    if key is not None:
        return "[hidden]" if key.type is ConfigType.PASSWORD else value
    return "[hidden]" if any(word in name.lower() for word in _SECRET_WORDS) else value


def effective_topic_config(
    broker_config: BrokerConfig, topic_overrides: Mapping[str, str], dynamic: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Every topic property, typed, under Kafka's name: the topic's own over the broker's defaults.

    ``dynamic`` are broker properties that were set at run time.
    """
    if dynamic:
        return effective_topic_values(broker_config.values, topic_overrides, dynamic)
    values = broker_config.topic_defaults()
    if topic_overrides:
        own = effective_topic_values(broker_config.values, topic_overrides)
        values.update((name, own[name]) for name in topic_overrides)
    return values


def _parse(raw: dict[str, str]) -> dict[str, Any]:
    given = dict(raw)
    # broker.id is the older name of node.id: either stands for both (KafkaConfig.populateSynonyms).
    if "broker.id" in given:
        given.setdefault("node.id", given["broker.id"])
    for name, reason in _REFUSED.items():
        if given.get(name, "").strip() not in ("", "false"):
            raise FatalError(f"{name}: {reason}")
    for name in ("process.roles", "node.id", "controller.listener.names"):
        if name not in given:
            raise FatalError(f"{name} is required and has no default")
    values: dict[str, Any] = {}
    for name, key in BROKER_CONFIGS.items():
        if name in given:
            values[name] = key.parse(given[name])
        elif key.has_default:
            values[name] = key.default_value()
    if "broker.id" not in given:
        values["broker.id"] = values["node.id"]
    return values


def _derive(raw: dict[str, str], values: dict[str, Any]) -> dict[str, Any]:
    """Properties that need more than their own text, checked on the way."""
    controller_names = tuple(name.upper() for name in values["controller.listener.names"])
    roles = frozenset(values["process.roles"])
    protocols = parse_security_protocol_map(values["listener.security.protocol.map"])
    if "listener.security.protocol.map" not in raw:
        # Controller listeners are plaintext unless a secure one is in use: then each must be spelled out.
        names = {entry.partition(":")[0].strip().upper() for entry in values["listeners"]} | set(controller_names)
        if not names & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"}:
            protocols |= dict.fromkeys(controller_names, "PLAINTEXT")
    for entry in values["listeners"]:
        name = entry.partition(":")[0].strip().upper()
        if protocols.get(name, "PLAINTEXT") != "PLAINTEXT":
            raise FatalError(f"listeners: {name} asks for {protocols[name]}; only PLAINTEXT is supported yet")
    listeners = parse_listeners("listeners", values["listeners"], protocols)
    check_ports(listeners)
    advertised = listeners
    if values["advertised.listeners"] is not None:
        advertised = parse_listeners("advertised.listeners", values["advertised.listeners"], protocols)
    voters = tuple(parse_voters(values["controller.quorum.voters"]))
    return {
        "process_roles": roles,
        "controller_listener_names": controller_names,
        "listener_security_protocol_map": protocols,
        "listeners": tuple(listeners),
        "advertised_listeners": tuple(entry for entry in advertised if entry.name not in controller_names),
        "advertised_controller_listeners": _advertised_controller_listeners(
            values, controller_names, listeners, advertised, voters
        ),
        "controller_quorum_voters": voters,
        "controller_quorum_bootstrap_servers": tuple(
            parse_host_port("controller.quorum.bootstrap.servers", entry)
            for entry in values["controller.quorum.bootstrap.servers"]
        ),
        "inter_broker_listener_name": _inter_broker_listener(raw, values, protocols),
        "max_connections_per_ip_overrides": _connection_overrides(values["max.connections.per.ip.overrides"]),
        "log_dirs": tuple(values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]),
        "metadata_log_dir": values["metadata.log.dir"] or (values["log.dirs"] or values["log.dir"])[0],
    }


def _advertised_controller_listeners(
    values: Mapping[str, Any],
    names: tuple[str, ...],
    listeners: list[Listener],
    advertised: list[Listener],
    voters: tuple[QuorumVoter, ...],
) -> tuple[Listener, ...]:
    """In the order of ``controller.listener.names`` (KafkaConfig.effectiveAdvertisedControllerListeners)."""
    chosen: list[Listener] = []
    explicit = {entry.name: entry for entry in advertised} if values["advertised.listeners"] is not None else {}
    bound = {entry.name: entry for entry in listeners}
    for position, name in enumerate(names):
        if name in explicit:
            chosen.append(explicit[name])
            continue
        listener = bound.get(name)
        if listener is None:
            continue
        own = next((voter for voter in voters if voter.node_id == values["node.id"]), None)
        host = "" if listener.host == "0.0.0.0" else listener.host
        if position == 0 and not host and own is not None:
            chosen.append(Listener(name, own.host, own.port, listener.security_protocol))
        else:
            chosen.append(Listener(name, host, listener.port, listener.security_protocol))
    return tuple(chosen)


def _inter_broker_listener(raw: Mapping[str, str], values: Mapping[str, Any], protocols: Mapping[str, str]) -> str:
    name = values["inter.broker.listener.name"]
    if name is None:
        return str(values["security.inter.broker.protocol"])
    if "security.inter.broker.protocol" in raw:
        raise FatalError("only one of inter.broker.listener.name and security.inter.broker.protocol may be set")
    if name.upper() not in protocols:
        raise FatalError(f"inter.broker.listener.name: {name} is not in listener.security.protocol.map")
    return str(name.upper())


def _connection_overrides(text: str) -> dict[str, int]:
    result: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, limit = entry.rpartition(":")
        if not host or not limit.strip().isascii() or not limit.strip().isdigit():
            raise FatalError(f"max.connections.per.ip.overrides: {entry!r} is not of the form address:limit")
        result[host.strip()] = int(limit)
    return result
