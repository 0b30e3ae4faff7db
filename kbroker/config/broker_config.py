"""A node's configuration: the typed, checked form of its ``server.properties``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbroker.config.broker import BROKER_CONFIGS, OWN_CONFIGS, BrokerProperties
from kbroker.config.broker_checks import ALL_CORDONED, CORDONED, check
from kbroker.config.config_key import InvalidConfig
from kbroker.config.listeners import (
    EXPLORER_LISTENER,
    METRICS_LISTENER,
    OTHER_METRICS,
    SERVED_PROTOCOLS,
    Listener,
    QuorumVoter,
    check_ports,
    http_address,
    parse_host_port,
    parse_listeners,
    parse_security_protocol_map,
    parse_voters,
)
from kbroker.config.provided import HIDDEN, PROVIDERS, Provided, without_values
from kbroker.config.topic_values import default_topic_values, effective_topic_values
from kbroker.errors import FatalError

if TYPE_CHECKING:
    from kbroker.config.security import SecurityValues


class BrokerConfig(BrokerProperties):
    """A node's properties, made by :meth:`from_properties` only, which checks them."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parse and check; :class:`FatalError` with one line that names the property, and tells no value of a provider.

        Variables are looked up before, in the file (`kbroker.config.providers`).
        """
        try:
            return cls._from_properties(properties)
        except FatalError as error:
            message = without_values(str(error), properties.values())
            if message == str(error):
                raise
            raise FatalError(message) from None

    @classmethod
    def _from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        raw = {name: value if type(value) is Provided else str(value) for name, value in properties.items()}
        try:
            of_absent, absent, unknown = _judge_others(raw)
            values = _parse(raw) | of_absent
        except InvalidConfig as error:
            raise FatalError(error.message) from error
        derived = _derive(raw, values)
        typed = {
            key.attribute: tuple(value) if isinstance(value := values[name], list) else value
            for name, key in (*BROKER_CONFIGS.items(), *OWN_CONFIGS.items())
        }
        topic_defaults = default_topic_values(values)
        known = BROKER_CONFIGS
        config = cls(
            typed
            | derived
            | {
                "raw": raw,
                "values": values,
                "unknown": unknown,
                "absent": absent,
                "without_effect": tuple(sorted(name for name in raw if name in known and known[name].no_effect)),
                "_defaults_for_topics": topic_defaults,
            }
        )
        check(config)
        return config

    def with_properties(self, changes: Mapping[str, str]) -> BrokerConfig:
        """The same with some properties set otherwise."""
        return self.from_properties(self.raw | dict(changes))

    def security(self, listener: str = "", mechanism: str = "") -> SecurityValues:
        """The properties of security as they hold for a listener and a mechanism of SASL."""
        from kbroker.config.security import SecurityValues

        return SecurityValues(self.values, listener, mechanism)

    def authenticates(self, listener: Listener) -> bool:
        """Whether a listener lets in only who has shown who they are: by SASL, or by a certificate."""
        if listener.security_protocol.startswith("SASL_"):
            from kbroker.config.security.sasl import UNSECURED_VALIDATOR

            handler = self.security(listener.name, "OAUTHBEARER")["sasl.server.callback.handler.class"]
            is_offered = "OAUTHBEARER" in self.security(listener.name)["sasl.enabled.mechanisms"]
            return not (is_offered and handler == UNSECURED_VALIDATOR)
        if listener.security_protocol == "SSL":
            return bool(self.security(listener.name)["ssl.client.auth"] == "required")
        return listener.security_protocol != "PLAINTEXT"

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={HIDDEN if type(value) is Provided else redact(name, value)}"
            for name, value in sorted(self.raw.items())
        )
        return f"BrokerConfig({shown})"


def with_provided(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a file with values in the places of variables; see `kbroker.config.providers`. `FatalError`."""
    if not properties.get(PROVIDERS, "").strip():
        return dict(properties)
    from kbroker.config.providers import looked_up  # with providers only: few files name any

    return looked_up(properties)


def redact(name: str, value: str) -> str:
    """The value, or ``[hidden]`` when the property may hold a secret (known as one, or by its name)."""
    from kbroker.config.secret_names import node_property, sounds_secret

    key = BROKER_CONFIGS.get(name) or node_property(name)
    return HIDDEN if (sounds_secret(name) if key is None else key.sensitive) else value


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


def _judge_others(raw: Mapping[str, str]) -> tuple[dict[str, Any], Mapping[str, str], tuple[str, ...]]:
    """Values, ``absent`` and ``unknown`` of the properties that are not in ``BROKER_CONFIGS``; few nodes have any.

    Values are under full names, ``listener.name.`` included.
    """
    others = sorted(name for name in raw if name not in BROKER_CONFIGS and name not in OWN_CONFIGS)
    if not others:
        return {}, {}, ()
    from kbroker.config.absent import REFUSED, absent_key, set_otherwise
    from kbroker.config.security import security_key

    of_security = {name: key for name in others if (key := security_key(name)) is not None}
    if raw.get("authorizer.class.name", "").strip():
        from kbroker.config.security.authorization import OF_AUTHORIZER

        others = [name for name in others if name not in OF_AUTHORIZER]
    if PROVIDERS in raw:
        others = [name for name in others if not name.startswith(f"{PROVIDERS}.")]  # read with the file
    for name in (METRICS_LISTENER, EXPLORER_LISTENER):
        if name in raw:
            http_address(raw, name)
            others.remove(name)
    if OTHER_METRICS in raw:
        parse_voters(raw[OTHER_METRICS].split(","), OTHER_METRICS)
        others.remove(OTHER_METRICS)
    others = [name for name in others if name not in of_security]
    keys = {name: absent_key(name) for name in others}
    otherwise = set_otherwise(raw, others)
    for name in otherwise:
        if name in REFUSED:
            raise FatalError(f"{name}: {REFUSED[name]}")
    return (
        {name: key.parse(raw[name]) for name, key in of_security.items()}
        | {name: key.parse(raw[name]) for name, key in keys.items() if key is not None and name == key.name},
        {name: key.no_effect for name, key in otherwise.items()},
        tuple(name for name, key in keys.items() if key is None),
    )


def _parse(raw: dict[str, str]) -> dict[str, Any]:
    given = dict(raw)
    # broker.id is the older name of node.id: either stands for both (KafkaConfig.populateSynonyms).
    if "broker.id" in given:
        given.setdefault("node.id", given["broker.id"])
    values: dict[str, Any] = {}
    for name in ("process.roles", "node.id", "controller.listener.names"):
        if name not in given:
            raise FatalError(f"{name} is required and has no default")
    for name, key in (*BROKER_CONFIGS.items(), *OWN_CONFIGS.items()):
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
        if protocols.get(name, "PLAINTEXT") not in SERVED_PROTOCOLS:
            served = " and ".join(SERVED_PROTOCOLS)
            raise FatalError(f"listeners: {name} asks for {protocols[name]}; only {served} is supported yet")
    listeners = parse_listeners("listeners", values["listeners"], protocols)
    check_ports(listeners)
    advertised = listeners
    if values["advertised.listeners"] is not None:
        advertised = parse_listeners("advertised.listeners", values["advertised.listeners"], protocols)
    voters = tuple(parse_voters(values["controller.quorum.voters"]))
    log_dirs = tuple(values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"])
    cordoned = tuple(values[CORDONED])
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
        "log_dirs": log_dirs,
        "cordoned_log_dirs": log_dirs if ALL_CORDONED in cordoned else cordoned,
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
