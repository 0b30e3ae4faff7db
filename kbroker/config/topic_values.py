"""A topic's effective configuration: its own properties over the broker's defaults for topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.config_key import InvalidConfig
from kbroker.config.topic import TOPIC_CONFIGS

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS

TOPIC_CONFIG_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""Topic property -> (broker property, milliseconds in its unit) that give its default; the first set wins."""


_COMPARED = ("min.compaction.lag.ms", "max.compaction.lag.ms", "remote.storage.enable")
"""Properties that are judged together with others, or whatever their value comes from."""


def validate_topic_config(name: str, value: str | None) -> Any:
    """The typed value of one topic property; :class:`InvalidConfig` when name or value cannot be taken."""
    if value is None:
        raise InvalidConfig(f"Null value not supported for topic configs: {name}")
    return TOPIC_CONFIGS.parse(name, value)


def validate_topic_configs(overrides: Mapping[str, str | None], broker: Mapping[str, Any] | None = None) -> None:
    """Judge all of a topic's own properties, each alone and together; raises :class:`InvalidConfig`.

    ``broker`` is ``BrokerConfig.values``, for defaults that one property is compared with.
    """
    values = {name: validate_topic_config(name, value) for name, value in overrides.items()}
    for name in _COMPARED:
        if name not in values:
            values[name] = _default_value(name, broker or {})
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if values["remote.storage.enable"]:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def default_topic_values(broker: Mapping[str, Any]) -> dict[str, Any]:
    """Every topic property as a topic without own properties has it, given the broker's typed properties."""
    values = {name: _default_value(name, broker) for name in TOPIC_CONFIGS}
    # Kafka takes any negative log.retention for "for ever", and so do its topics.
    values["retention.ms"] = max(values["retention.ms"], -1)
    return values


def _default_value(name: str, broker: Mapping[str, Any]) -> Any:
    for synonym, unit in TOPIC_CONFIG_SYNONYMS.get(name, ()):
        value = broker.get(synonym)
        if value is not None:
            return value * unit if unit != 1 else value
    return TOPIC_CONFIGS[name].default_value()


def effective_topic_values(
    broker: Mapping[str, Any], overrides: Mapping[str, str], dynamic: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Every topic property, typed, under Kafka's name.

    ``broker`` holds the node's own typed properties, ``dynamic`` the broker properties set at run time (they
    go before the node's own), ``overrides`` the topic's. A stored value that can no longer be taken counts as
    unset.
    """
    effective = dict(broker)
    for name, text in (dynamic or {}).items():
        try:
            effective[name] = BROKER_CONFIGS.parse(name, text)
        except InvalidConfig:
            continue
    values = default_topic_values(effective)
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_CONFIGS.parse(name, text)
        except InvalidConfig:
            continue
    return values
