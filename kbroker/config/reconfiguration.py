"""Whether a node could run with other dynamic properties: Kafka's ``DynamicBrokerConfig`` and what it asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.config.broker_checks import CORDONED
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.config_key import ConfigType, InvalidConfig, UpdateMode, invalid_value
from kbroker.config.not_at_run_time import run_time_key, why_refused
from kbroker.config.run_time_only import broker_config_key
from kbroker.errors import FatalError

_SYNONYM_GROUPS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
BROKER_SYNONYMS = {name: group for group in _SYNONYM_GROUPS for name in group}
"""Name of a broker property that others stand for too -> all of them, the one that wins first."""

_THREADS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)

JUDGED_BY_BROKERS = frozenset({CORDONED, "listeners", "listener.security.protocol.map"})
"""Dynamic properties that only the broker itself can judge, which has listeners and log directories of its own."""

OF_ALL_BROKERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Properties of a listener that may be set for all brokers at once."""

_JMX = "org.apache.kafka.common.metrics.JmxReporter"


def overridden(properties: Mapping[str, str], layers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """``properties`` with each of ``layers`` over them: one that is set there also puts its synonyms out of force."""
    result = dict(properties)
    for layer in layers:
        for name in layer:
            for synonym in BROKER_SYNONYMS.get(name, ()):
                result.pop(synonym, None)
        result |= layer
    return result


def validate_reconfiguration(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise :class:`InvalidConfig` if a node that runs with the properties ``before`` cannot go on with ``after``.

    Both are all of a node's properties, those set at run time among them; each alone has been judged already.
    """
    try:
        new = BrokerConfig.from_properties(after)
    except FatalError as error:
        raise InvalidConfig(f"requirement failed: {error}") from None
    try:
        old = BrokerConfig.from_properties(before)
    except FatalError:
        return  # stored by an earlier release that judged less: any way out of it is right
    for name in _THREADS:
        _check_threads(name, _number(name, before), _number(name, after))
    threads, wanted = old.log_cleaner_threads, new.log_cleaner_threads
    if wanted < threads // 2:
        raise _refused(f"Log cleaner threads cannot be reduced to less than half the current value {threads}")
    if wanted > threads * 2:
        raise _refused(f"Log cleaner threads cannot be increased to more than double the current value {threads}")
    _check_local_retention(new)


def refused_names(names: Iterable[str]) -> str:
    """Returns the reason why some of these cannot be set while a node runs, whatever the values are; or nothing."""
    fixed = with_mode(names, UpdateMode.READ_ONLY)
    if fixed:
        return f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
    unprefixed = _without_prefix(names)
    if unprefixed:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(unprefixed)}]"
        )
    return ""


def with_mode(names: Iterable[str], mode: UpdateMode) -> list[str]:
    """Returns those of some properties that have an update mode."""
    return sorted(name for name in names if (key := broker_config_key(name)) is not None and key.update_mode is mode)


def _without_prefix(names: Iterable[str]) -> list[str]:
    """Properties of TLS that only a listener can have while it runs."""
    if not any(name.startswith("ssl.") for name in names):
        return []
    from kbroker.config.security.tls import STORES

    return sorted(STORES.intersection(names))


def check_values(configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Judge each of a broker's dynamic properties by itself, those for a listener too; ``before`` it has already, and
    may keep. :class:`InvalidConfig`."""
    from kbroker.config.security import rules

    for name, text in configs.items():
        key = run_time_key(name)
        if key is None or before.get(name) == text:
            continue
        key.parse(text)
        reason = why_refused(name)
        if reason:
            raise InvalidConfig(reason)
        if (
            key.type is ConfigType.CLASS
            and text.strip() != rules.DEFAULT_PRINCIPAL_BUILDER
            and not rules.names_python(text)
        ):
            raise invalid_value(key.name, text, f"Class {text} could not be found.")
        if key.name == "metric.reporters" and not set(key.parse(text)) <= {_JMX}:
            raise invalid_value(name, text, f"over the wire it may name {_JMX} alone, which does nothing")


def check_listeners(own: BrokerConfig, before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise :class:`InvalidConfig` if a node cannot have the listeners of ``after`` in place of those of ``before``.

    ``own`` is the node's file: it has been registered with what stands there.
    """
    wanted = {listener.name: listener for listener in after.listeners}
    advertised = {listener.name for listener in own.advertised_listeners}
    if not advertised <= wanted.keys():
        raise _refused(f"Advertised listeners '{sorted(advertised)}' must be a subset of listeners '{sorted(wanted)}'")
    for listener in before.listeners:
        new = wanted.get(listener.name)
        if new is not None and new.security_protocol != listener.security_protocol:
            raise _refused(f"Security protocol cannot be updated for existing listener ListenerName({listener.name})")
        if listener.name in before.controller_listener_names and new is None:
            raise _refused(f"Listener {listener.name} of controllers cannot be removed while the node runs")


def _number(name: str, properties: Mapping[str, str]) -> int:
    key = run_time_key(name)
    assert key is not None
    text = properties.get(name)
    return int(key.default_value() if text is None else key.parse(text))


def _check_threads(name: str, current: int, wanted: int) -> None:
    failed = f"Dynamic thread count update validation failed for {name}={wanted}"
    if wanted < current // 2:
        raise _refused(f"{failed}, value should be at least half the current value {current}")
    if wanted > current * 2:
        raise _refused(f"{failed}, value should not be greater than double the current value {current}")


def _check_local_retention(config: BrokerConfig) -> None:
    """Judged although nothing is tiered, as Kafka does."""
    for unit, retention in (
        ("ms", config.topic_defaults()["retention.ms"]),
        ("bytes", config.values["log.retention.bytes"]),
    ):
        name, whole = f"log.local.retention.{unit}", f"log.retention.{unit}"
        local = config.values[name]
        if retention < 0 or local == -2:
            continue
        invalid = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == -1:
            raise _refused(f"{invalid} -1 as {whole} value is set as {retention}.")
        if local > retention:
            raise _refused(f"{invalid} more than {whole} property value: {retention}")


def _refused(why: str) -> InvalidConfig:
    """Kafka wraps these in a second ConfigException, whose parts come out in odd places; tools show that sentence."""
    return InvalidConfig(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {why} "
        "for configuration Invalid dynamic configuration"
    )
