"""Whether a node could run with other dynamic properties: Kafka's ``DynamicBrokerConfig`` and what it asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.config.broker_checks import CORDONED
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.definition import InvalidConfig
from kbroker.config.fixed import OF_THE_NODE, RUNNING, why_fixed
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
)


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
    before, after = _without_directories(before), _without_directories(after)
    try:
        new = BrokerConfig.from_properties(after)
    except FatalError as error:
        raise InvalidConfig(f"requirement failed: {error}") from None
    try:
        old = BrokerConfig.from_properties(before)
    except FatalError:
        return  # stored by an earlier release that judged less: any way out of it is right
    for name in _THREADS:
        _check_threads(name, old.values[name], new.values[name])
    threads, wanted = old.log_cleaner_threads, new.log_cleaner_threads
    if wanted < threads // 2:
        raise _refused(f"Log cleaner threads cannot be reduced to less than half the current value {threads}")
    if wanted > threads * 2:
        raise _refused(f"Log cleaner threads cannot be increased to more than double the current value {threads}")
    _check_local_retention(new)
    for name in OF_THE_NODE:
        if old.values[name] != new.values[name]:
            raise _refused(why_fixed(name))


def check_security(configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Judge a broker's dynamic properties of its listeners' security (Kafka's ``DynamicSecurityConfigs``).

    ``before`` are those it has already, which may stay. :class:`InvalidConfig`.
    """
    from kbroker.config.security import security_key, tls

    for name, text in configs.items():
        key = security_key(name)
        if key is None or before.get(name) == text:
            continue
        reason = RUNNING.format(name) if name in tls.STORES else why_fixed(name)
        if reason:
            raise InvalidConfig(reason)
        key.parse(text)


def _without_directories(properties: Mapping[str, str]) -> dict[str, str]:
    """Without what only the broker itself can judge, which has log directories of its own."""
    return {name: value for name, value in properties.items() if name != CORDONED}


def check_cordoned(config: BrokerConfig, value: str) -> None:
    """Raise :class:`InvalidConfig` if a node of this configuration cannot have this value of ``cordoned.log.dirs``."""
    try:
        config.with_properties({CORDONED: value})
    except FatalError as error:
        raise InvalidConfig(f"requirement failed: {error}") from None


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
