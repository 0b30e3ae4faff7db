"""Configuration as DescribeConfigs and CreateTopics show it: each property, its value, and the sources of the value."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config import (
    TOPIC_CONFIG_SYNONYMS,
    TOPIC_CONFIGS,
    ConfigKey,
    InvalidConfig,
    UpdateMode,
    effective_topic_config,
)
from kbroker.config.reconfiguration import BROKER_SYNONYMS
from kbroker.config.run_time_only import DYNAMIC_BROKER_CONFIGS, broker_config_key
from kbroker.raft_metadata.config_schema import ConfigSchema, dynamic_broker_configs
from kbroker.raft_metadata.image import ConfigsImage
from kbroker.value_types import NamedTuple

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A source's value of a property: in force, or it would be without the synonyms before it."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One effective property: ``value`` is None if it is null or secret; ``synonyms`` begins with the one in force."""

    name: str
    value: str | None
    source: int
    sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: int
    documentation: str | None


def topic_entries(
    schema: ConfigSchema, configs: ConfigsImage, overrides: Mapping[str, str], *, documentation: bool = False
) -> list[ConfigEntry]:
    """Every property of a topic with these overrides."""
    dynamic = dynamic_broker_configs(configs, schema.config.node_id)
    values = effective_topic_config(schema.config, overrides, dynamic or None)
    entries = []
    for name, key in TOPIC_CONFIGS.items():
        if key.internal and name not in overrides:
            continue
        of_broker = TOPIC_CONFIG_SYNONYMS.get(name)
        is_provided = name not in overrides and any(each in schema.provided for each, _ in of_broker or ())
        value = None if key.sensitive or is_provided else key.format(values.get(name))
        synonyms: list[Synonym] = []
        if name in overrides:
            synonyms.append(Synonym(name, value, DYNAMIC_TOPIC_CONFIG))
        if of_broker:
            synonyms += _broker_synonyms(schema, configs, of_broker[0][0])
        entries.append(
            ConfigEntry(
                name,
                value,
                synonyms[0].source if synonyms else DEFAULT_CONFIG,
                key.sensitive,
                False,
                tuple(synonyms),
                int(key.type),
                key.doc if documentation else None,
            )
        )
    return entries


def broker_entries(schema: ConfigSchema, configs: ConfigsImage, *, documentation: bool = False) -> list[ConfigEntry]:
    """Every property of this node: all of Kafka's, and internal and unknown ones that were set."""
    from kbroker.config.absent import ALL_BROKER_CONFIGS

    dynamic = dynamic_broker_configs(configs, schema.config.node_id)
    given = {**schema.static, **dynamic}
    names = [name for name, key in ALL_BROKER_CONFIGS.items() if not key.internal or name in given]
    names += sorted(name for name in given if name not in ALL_BROKER_CONFIGS)
    return [
        _broker_entry(schema, name, configs, _broker_value(schema, name, dynamic), True, documentation)
        for name in names
    ]


def broker_default_entries(
    schema: ConfigSchema, configs: ConfigsImage, *, documentation: bool = False
) -> list[ConfigEntry]:
    """The dynamic default configs of all brokers."""
    return [
        _broker_entry(schema, name, configs, value, False, documentation)
        for name, value in sorted(configs.for_broker(None).items())
    ]


def group_entries(
    schema: ConfigSchema, configs: ConfigsImage, overrides: Mapping[str, str], *, documentation: bool = False
) -> list[ConfigEntry]:
    """Every property of a group with these overrides, whatever its kind."""
    from kbroker.config.absent import ALL_BROKER_CONFIGS, ALL_GROUP_CONFIGS
    from kbroker.config.group import OTHER_SYNONYMS

    dynamic = dynamic_broker_configs(configs, schema.config.node_id)
    entries = []
    for name, key in ALL_GROUP_CONFIGS.items():
        if key.internal and name not in overrides:
            continue
        of_broker = OTHER_SYNONYMS.get(name, f"group.{name}")
        has_synonym = of_broker in ALL_BROKER_CONFIGS
        default = _broker_value(schema, of_broker, dynamic) if has_synonym else key.format(key.default_value())
        if of_broker in schema.provided:
            default = None
        value = _parsed(key, overrides[name]) if name in overrides else default
        synonyms = [Synonym(name, value, GROUP_CONFIG)] if name in overrides else []
        if has_synonym:
            synonyms += _broker_synonyms(schema, configs, of_broker)
        else:
            synonyms.append(Synonym(name, default, DEFAULT_CONFIG))
        entries.append(
            ConfigEntry(
                name,
                value,
                synonyms[0].source,
                False,
                False,
                tuple(synonyms),
                int(key.type),
                key.doc if documentation else None,
            )
        )
    return entries


def client_metrics_entries(overrides: Mapping[str, str], *, documentation: bool = False) -> list[ConfigEntry]:
    """Every property of a subscription to clients' metrics with these overrides."""
    from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS

    entries = []
    for name, key in CLIENT_METRICS_CONFIGS.items():
        value = _parsed(key, overrides[name]) if name in overrides else key.format(key.default_value())
        own = (Synonym(name, value, CLIENT_METRICS_CONFIG),) if name in overrides else ()
        entries.append(
            ConfigEntry(
                name,
                value,
                CLIENT_METRICS_CONFIG if own else DEFAULT_CONFIG,
                False,
                False,
                own,
                int(key.type),
                key.doc if documentation else None,
            )
        )
    return entries


def _parsed(key: ConfigKey, text: str) -> str | None:
    """A stored value in the form that it is shown in; as it stands if this release would not take it."""
    try:
        return key.format(key.parse(text))
    except InvalidConfig:
        return text


def _broker_value(schema: ConfigSchema, name: str, dynamic: Mapping[str, str]) -> str | None:
    text = dynamic.get(name)
    key = broker_config_key(name)
    if key is None or name in DYNAMIC_BROKER_CONFIGS:
        return text if text is not None else schema.static.get(name)  # such as one of DYNAMIC_BROKER_CONFIGS
    if text is not None:
        try:
            return key.format(key.parse(text))
        except InvalidConfig:
            pass  # stored by an earlier release: the node runs without it, and shows that
    values = schema.config.values
    return key.format(values[name] if name in values else key.default_value())


def _broker_entry(
    schema: ConfigSchema, name: str, configs: ConfigsImage, value: str | None, per_broker: bool, documentation: bool
) -> ConfigEntry:
    key = broker_config_key(name) or _listener_key(name)
    sensitive = name in schema.provided or (key.sensitive if key is not None else True)
    synonyms = [
        synonym
        for synonym in _broker_synonyms(schema, configs, name)
        if per_broker or synonym.source == DYNAMIC_DEFAULT_BROKER_CONFIG
    ]
    return ConfigEntry(
        name,
        None if sensitive else value,
        synonyms[0].source if synonyms else DEFAULT_CONFIG,
        sensitive,
        # Kafka calls what has a listener's prefix fixed, and changes it.
        key is None or key.name != name or key.update_mode is UpdateMode.READ_ONLY,
        tuple(synonyms),
        0 if key is None else int(key.type),
        key.doc if documentation and key is not None and name not in DYNAMIC_BROKER_CONFIGS else None,
    )


def _listener_key(name: str) -> ConfigKey | None:
    """The key of a property of security with a listener's prefix."""
    if not name.startswith("listener.name."):
        return None
    from kbroker.config.security import security_key

    return security_key(name)


def _broker_synonyms(schema: ConfigSchema, configs: ConfigsImage, name: str) -> list[Synonym]:
    key = broker_config_key(name) or _listener_key(name)
    sensitive = name in schema.provided or (key.sensitive if key is not None else True)
    found: list[Synonym] = []
    for table, source in (
        (configs.for_broker(schema.config.node_id), DYNAMIC_BROKER_CONFIG),
        (configs.for_broker(None), DYNAMIC_DEFAULT_BROKER_CONFIG),
        (schema.static, STATIC_BROKER_CONFIG),
        (schema.defaults, DEFAULT_CONFIG),
    ):
        for synonym in BROKER_SYNONYMS.get(name, (name,)):
            value = table.get(synonym)
            if value is not None:
                is_hidden = sensitive or synonym in schema.provided
                found.append(Synonym(synonym, None if is_hidden else value, source))
    # As Kafka: values before the property's own name belong to another property.
    while found and found[0].name != name:
        found.pop(0)
    return found
