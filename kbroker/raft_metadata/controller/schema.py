"""Configuration as the metadata plane sees it: what is valid, and which source an effective value comes from.

Sources are looked up in Kafka's order: topic, this broker's dynamic config, the cluster-wide dynamic default, the
node's properties file, the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIG_SYNONYMS,
    GROUP_CONFIGS,
    TOPIC_CONFIG_SYNONYMS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    GroupConfig,
    InvalidConfig,
    UpdateMode,
    effective_group_config,
    effective_topic_config,
    validate_group_configs,
    validate_topic_configs,
)
from kbroker.config.dynamic import DYNAMIC_BROKER_CONFIGS, broker_config_key
from kbroker.config.group import check_consumer_group_bounds
from kbroker.config.reconfiguration import BROKER_SYNONYMS, overridden, validate_reconfiguration
from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.image import ConfigResource, ConfigsImage, MetadataImage, ResourceType

UNKNOWN_SOURCE = 0
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8

_SECURITY_CONFIGS = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)


class Synonym(NamedTuple):
    """A value that stands, or would stand if those before it did not."""

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


def group_config(image: MetadataImage, broker_config: BrokerConfig, group_id: str) -> GroupConfig:
    """What is in force for a consumer group: its own values over those of the broker, in the broker's bounds."""
    overrides = image.configs.get(ConfigResource(ResourceType.GROUP, group_id))
    return effective_group_config(overrides, _broker_values(image.configs, broker_config))


def _broker_values(configs: ConfigsImage, broker_config: BrokerConfig) -> Mapping[str, Any]:
    """The node's typed properties, with those that groups stand on as they were set at run time."""
    dynamic = _dynamic(configs, broker_config.node_id)
    changed = {}
    for name in GROUP_CONFIG_SYNONYMS.values():
        if name in dynamic:
            try:
                changed[name] = BROKER_CONFIGS.parse(name, dynamic[name])
            except InvalidConfig:
                pass  # stored by an earlier release: the node's own value stays
    return {**broker_config.values, **changed} if changed else broker_config.values


def _dynamic(configs: ConfigsImage, node_id: int) -> dict[str, str]:
    return {**configs.for_broker(None), **configs.for_broker(node_id)}


class ConfigSchema:
    """The rules for one node's configuration. ``defaults`` (what the node's file and the defaults say) never change."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._static = dict(config.raw)
        if "node.id" in self._static:
            self._static.setdefault("broker.id", self._static["node.id"])
        self._defaults = {
            name: key.format(key.default_value()) for name, key in BROKER_CONFIGS.items() if key.has_default
        }

    @property
    def static_min_insync_replicas(self) -> int:
        """``min.insync.replicas`` by the node's file, or its default."""
        return int(self.config.values["min.insync.replicas"])

    def topic_value(self, configs: ConfigsImage, topic: str, name: str) -> Any:
        """One typed property of a topic whose default is the broker property of the same name."""
        for table in (configs.for_topic(topic), configs.for_broker(self.config.node_id), configs.for_broker(None)):
            if name in table:
                try:
                    return TOPIC_CONFIGS.parse(name, table[name])
                except InvalidConfig:
                    pass  # stored by an earlier release: counts as unset
        return self.config.values[name]

    # Validation

    def validate_topic(self, configs: Mapping[str, str]) -> None:
        """``ApiError`` INVALID_CONFIG if a topic cannot have these overrides."""
        try:
            validate_topic_configs(configs, self.config.values)
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None

    def validate_group(self, image: ConfigsImage, configs: Mapping[str, str]) -> None:
        """``ApiError`` INVALID_CONFIG if a group cannot have these configs."""
        try:
            validate_group_configs(configs, _broker_values(image, self.config))
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None

    def validate_broker(self, image: ConfigsImage, configs: Mapping[str, str], *, broker_id: int | None) -> None:
        """``ApiError`` INVALID_REQUEST (Kafka's choice of code) if these cannot be a broker's dynamic configs.

        ``broker_id``: for one broker, taken to have this one's properties file; None for all, of which this one is
        judged.
        """
        fixed = sorted(
            name
            for name in configs
            if (key := BROKER_CONFIGS.get(name)) is not None and key.update_mode is UpdateMode.READ_ONLY
        )
        if fixed:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        unprefixed = sorted(_SECURITY_CONFIGS.intersection(configs))
        if unprefixed:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"[{', '.join(unprefixed)}]",
            )
        values: dict[str, Any] = {}
        try:
            for name, value in configs.items():
                key = broker_config_key(name)
                if key is not None:
                    values[name] = key.parse(value)
            check_consumer_group_bounds(self.config.values | values)
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
        if broker_id is None:
            single = sorted(
                name
                for name in configs
                if (key := BROKER_CONFIGS.get(name)) is not None and key.update_mode is UpdateMode.PER_BROKER
            )
            if single:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "Cannot update these configs at default cluster level, broker id must be specified: "
                    f"[{', '.join(single)}]",
                )
        default = image.for_broker(None)
        own = image.for_broker(self.config.node_id if broker_id is None else broker_id)
        try:
            validate_reconfiguration(
                overridden(self.config.raw, (default, own)),
                overridden(self.config.raw, (configs, own) if broker_id is None else (default, configs)),
            )
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None

    def key(self, resource_type: int, name: str) -> ConfigKey | None:
        """What a property is; None if its kind of resource has no such one."""
        if resource_type == ResourceType.BROKER:
            return broker_config_key(name)
        table = {
            ResourceType.TOPIC: TOPIC_CONFIGS,
            ResourceType.GROUP: GROUP_CONFIGS,
        }.get(resource_type)
        return None if table is None else table.get(name)

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense."""
        key = self.key(resource_type, name)
        return key is not None and key.type is ConfigType.LIST

    def default(self, resource_type: int, name: str) -> str | None:
        """The default as text, if there is one."""
        key = self.key(resource_type, name)
        return key.format(key.default_value()) if key is not None and key.has_default else None

    # Description

    def topic_entries(
        self, configs: ConfigsImage, overrides: Mapping[str, str], *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Every property of a topic with these overrides."""
        dynamic = self._dynamic(configs)
        values = effective_topic_config(self.config, overrides, dynamic or None)
        entries = []
        for name, key in TOPIC_CONFIGS.items():
            if key.internal and name not in overrides:
                continue
            value = None if key.sensitive else key.format(values.get(name))
            synonyms: list[Synonym] = []
            if name in overrides:
                synonyms.append(Synonym(name, value, DYNAMIC_TOPIC_CONFIG))
            of_broker = TOPIC_CONFIG_SYNONYMS.get(name)
            if of_broker:
                synonyms += self._broker_synonyms(configs, of_broker[0][0])
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

    def broker_entries(self, configs: ConfigsImage, *, documentation: bool = False) -> list[ConfigEntry]:
        """Every property of this node: the known ones, and unknown ones that were set."""
        dynamic = self._dynamic(configs)
        names = [name for name, key in BROKER_CONFIGS.items() if not key.internal or name in self._static]
        names += sorted(name for name in {**self._static, **dynamic} if name not in BROKER_CONFIGS)
        return [
            self._broker_entry(name, configs, self._broker_value(name, dynamic), True, documentation) for name in names
        ]

    def broker_default_entries(self, configs: ConfigsImage, *, documentation: bool = False) -> list[ConfigEntry]:
        """What is set for all brokers at run time."""
        return [
            self._broker_entry(name, configs, value, False, documentation)
            for name, value in sorted(configs.for_broker(None).items())
        ]

    def group_entries(
        self, configs: ConfigsImage, overrides: Mapping[str, str], *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Every property of a group with these overrides."""
        dynamic = self._dynamic(configs)
        entries = []
        for name, key in GROUP_CONFIGS.items():
            of_broker = GROUP_CONFIG_SYNONYMS[name]
            value = overrides.get(name, self._broker_value(of_broker, dynamic))
            synonyms = [Synonym(name, value, GROUP_CONFIG)] if name in overrides else []
            synonyms += self._broker_synonyms(configs, of_broker)
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

    def _dynamic(self, configs: ConfigsImage) -> dict[str, str]:
        return _dynamic(configs, self.config.node_id)

    def _broker_value(self, name: str, dynamic: Mapping[str, str]) -> str | None:
        text = dynamic.get(name)
        key = BROKER_CONFIGS.get(name)
        if key is None:
            return text if text is not None else self._static.get(name)  # such as one of DYNAMIC_BROKER_CONFIGS
        if text is not None:
            try:
                return key.format(key.parse(text))
            except InvalidConfig:
                pass  # stored by an earlier release: the node runs on without it, and so says this
        return key.format(self.config.values.get(name))

    def _broker_entry(
        self, name: str, configs: ConfigsImage, value: str | None, per_broker: bool, documentation: bool
    ) -> ConfigEntry:
        key = broker_config_key(name)
        sensitive = key.sensitive if key is not None else True
        synonyms = [
            synonym
            for synonym in self._broker_synonyms(configs, name)
            if per_broker or synonym.source == DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        return ConfigEntry(
            name,
            None if sensitive else value,
            synonyms[0].source if synonyms else DEFAULT_CONFIG,
            sensitive,
            key is None or key.update_mode is UpdateMode.READ_ONLY,
            tuple(synonyms),
            0 if key is None else int(key.type),
            key.doc if documentation and key is not None and name not in DYNAMIC_BROKER_CONFIGS else None,
        )

    def _broker_synonyms(self, configs: ConfigsImage, name: str) -> list[Synonym]:
        key = broker_config_key(name)
        sensitive = key.sensitive if key is not None else True
        found: list[Synonym] = []
        for table, source in (
            (configs.for_broker(self.config.node_id), DYNAMIC_BROKER_CONFIG),
            (configs.for_broker(None), DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, STATIC_BROKER_CONFIG),
            (self._defaults, DEFAULT_CONFIG),
        ):
            for synonym in BROKER_SYNONYMS.get(name, (name,)):
                value = table.get(synonym)
                if value is not None:
                    found.append(Synonym(synonym, None if sensitive else value, source))
        # As Kafka: what stands before the property's own name belongs to another property.
        while found and found[0].name != name:
            found.pop(0)
        return found
