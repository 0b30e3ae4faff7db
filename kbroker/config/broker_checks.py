"""Rules between a node's properties, each of which is valid by itself."""

from __future__ import annotations

from kbroker.config.assignors import check_assignors
from kbroker.config.broker import BrokerProperties
from kbroker.config.config_key import InvalidConfig
from kbroker.config.group import check_group_bounds
from kbroker.errors import FatalError

REPLICA_SELECTORS = tuple(
    f"org.apache.kafka.common.replica.{name}" for name in ("LeaderSelector", "RackAwareReplicaSelector")
)


CORDONED = "cordoned.log.dirs"
ALL_CORDONED = "*"
"""In ``cordoned.log.dirs``: all log directories."""

_RULES = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "group.streams.topology.description.plugin.class",
    "principal.builder.class",
    "sasl.server.callback.handler.class",
)


def check(config: BrokerProperties) -> None:
    """:class:`FatalError` for the first rule that is broken (KafkaConfig.validateValues).

    Where a change at run time can break a rule, the sentence is Kafka's, since its tools show it.
    """
    _require(
        config.values["broker.id"] == config.values["node.id"],
        "node.id and broker.id must be the same when both are set",
    )
    _check_logs(config)
    _check_replication(config)
    _check_network(config)
    _check_cordoned(config)
    _check_groups(config)
    _check_quorum(config)
    _check_listeners(config)
    if not config.values.keys().isdisjoint(("authorizer.class.name", "early.start.listeners")):
        from kbroker.config.security.authorization import check_authorization

        check_authorization(config)
    if "metric.reporters" in config.raw:
        from kbroker.config.telemetry import check_telemetry

        check_telemetry(config)
    if any(name.endswith(_RULES) for name in config.values):
        from kbroker.config.security.rules import check_rules

        check_rules(config)


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise FatalError(text)


def _check_logs(config: BrokerProperties) -> None:
    topic = config.topic_defaults()
    low, high = topic["min.compaction.lag.ms"], topic["max.compaction.lag.ms"]
    _require(
        low <= high,
        f"log.cleaner.min.compaction.lag.ms ({low}) is greater than log.cleaner.max.compaction.lag.ms ({high})",
    )
    _require(topic["segment.ms"] >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(topic["segment.jitter.ms"] >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        topic["retention.ms"] == -1 or topic["retention.ms"] >= 1,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )
    _require(
        config.log_cleaner_dedupe_buffer_size > 1024 * 1024 * config.log_cleaner_threads,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )


def _check_replication(config: BrokerProperties) -> None:
    selector = (config.replica_selector_class or "").strip()
    if selector not in ("", *REPLICA_SELECTORS):
        from kbroker.config.security.rules import check_name

        check_name("replica.selector.class", selector)
    _require(
        config.replica_fetch_wait_max_ms <= config.replica_socket_timeout_ms,
        "replica.socket.timeout.ms must be at least replica.fetch.wait.max.ms",
    )
    _require(
        config.replica_fetch_wait_max_ms <= config.replica_lag_time_max_ms,
        "replica.lag.time.max.ms must be at least replica.fetch.wait.max.ms",
    )


def _check_network(config: BrokerProperties) -> None:
    _require(
        config.queued_max_request_bytes <= 0 or config.queued_max_request_bytes >= config.socket_request_max_bytes,
        "queued.max.request.bytes must be at least socket.request.max.bytes",
    )
    _require(
        config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )


def _check_cordoned(config: BrokerProperties) -> None:
    """Kafka's ``KafkaConfig.validateCordonedLogDirs``."""
    cordoned = config.values[CORDONED]
    if ALL_CORDONED in cordoned:
        if len(cordoned) > 1:
            raise FatalError("When cordoned.log.dirs is set to *, it must not contain other values")
        return
    missing = [path for path in cordoned if path not in config.log_dirs]
    if missing:
        raise FatalError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )


def _check_groups(config: BrokerProperties) -> None:
    _require(
        "classic" in config.group_coordinator_rebalance_protocols,
        "group.coordinator.rebalance.protocols must contain classic",
    )
    check_assignors(config)
    try:
        check_group_bounds(config.values)
    except InvalidConfig as error:
        raise FatalError(error.message) from None
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        codec = config.values[name]
        _require(0 <= codec <= 4, f"Unknown compression type id: {codec}; {name} must be between 0 and 4")


def _check_quorum(config: BrokerProperties) -> None:
    voters = {voter.node_id for voter in config.controller_quorum_voters}
    if not voters and not config.controller_quorum_bootstrap_servers:
        raise FatalError("either controller.quorum.bootstrap.servers or controller.quorum.voters must be set")
    if config.is_controller and voters and config.node_id not in voters:
        raise FatalError(
            f"controller.quorum.voters must contain node.id {config.node_id}, as process.roles has controller"
        )
    if not config.is_controller:
        if config.node_id in voters:
            raise FatalError(
                f"controller.quorum.voters must not contain node.id {config.node_id}, as process.roles has only broker"
            )
        if config.controller_quorum_auto_join_enable:
            raise FatalError("controller.quorum.auto.join.enable needs the role controller in process.roles")


def _check_listeners(config: BrokerProperties) -> None:
    names = {listener.name for listener in config.listeners}
    advertised = {listener.name for listener in config.advertised_listeners}
    if config.is_controller:
        missing = [name for name in config.controller_listener_names if name not in names]
        if missing:
            raise FatalError(
                "controller.listener.names must only contain values appearing in the 'listeners' configuration "
                "when running the KRaft controller role"
            )
        if not config.is_broker and len(config.controller_listeners) != len(config.listeners):
            raise FatalError("listeners may only name controller.listener.names when process.roles is controller")
    else:
        if config.controller_listeners:
            raise FatalError("listeners must not name controller.listener.names when process.roles is broker")
        for name in config.controller_listener_names:
            if name not in config.listener_security_protocol_map:
                raise FatalError(f"controller.listener.names: {name} is not in listener.security.protocol.map")
    if config.is_broker:
        if not advertised:
            raise FatalError("listeners: a broker needs a listener that is not in controller.listener.names")
        if config.inter_broker_listener_name not in advertised:
            raise FatalError(
                f"inter.broker.listener.name: {config.inter_broker_listener_name}"
                " is not among advertised.listeners"
                f" ({', '.join(sorted(advertised))})"
            )
        if not advertised <= names:
            raise FatalError(
                f"advertised.listeners: {', '.join(sorted(advertised - names))} is not among listeners"
                f" ({', '.join(sorted(names))})"
            )
    for listener in (*config.advertised_listeners, *config.advertised_controller_listeners):
        if listener.host == "0.0.0.0":
            raise FatalError("advertised.listeners cannot be 0.0.0.0, which nobody can connect to: give a real address")
