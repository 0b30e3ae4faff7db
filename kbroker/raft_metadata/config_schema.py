"""Look-up of configs: the dynamic configs of an image over one node's properties file.

An effective value comes from the first of these sources that has one: the topic's overrides, this broker's dynamic
configs, the dynamic default of all brokers, the node's properties file, the default (Kafka's ``KafkaConfigSchema``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from kbroker.config import (
    BROKER_CONFIGS,
    GROUP_CONFIG_SYNONYMS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    GroupConfig,
    InvalidConfig,
    effective_group_config,
)
from kbroker.config.provided import provided_names
from kbroker.config.run_time_only import broker_config_key
from kbroker.raft_metadata.image import ConfigResource, ConfigsImage, MetadataImage, ResourceType

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


def dynamic_broker_configs(configs: ConfigsImage, node_id: int) -> dict[str, str]:
    """The dynamic configs of a broker: its own over the default of all brokers."""
    return {**configs.for_broker(None), **configs.for_broker(node_id)}


def group_config(image: MetadataImage, broker_config: BrokerConfig, group_id: str) -> GroupConfig:
    """The effective configuration of a consumer group: its own values over the broker's, in the broker's bounds."""
    overrides = image.configs.get(ConfigResource(ResourceType.GROUP, group_id))
    return effective_group_config(overrides, broker_values(image.configs, broker_config))


def broker_values(configs: ConfigsImage, broker_config: BrokerConfig) -> Mapping[str, Any]:
    """The node's typed properties; the defaults of group configs as they were set at run time."""
    dynamic = dynamic_broker_configs(configs, broker_config.node_id)
    changed = {}
    for name in GROUP_CONFIG_SYNONYMS.values():
        if name in dynamic:
            try:
                changed[name] = BROKER_CONFIGS.parse(name, dynamic[name])
            except InvalidConfig:
                pass  # stored by an earlier release: the node's own value stays
    return {**broker_config.values, **changed} if changed else broker_config.values


def broker_value(configs: ConfigsImage, broker_config: BrokerConfig, name: str) -> Any:
    """The typed value of a node's property, as it was set at run time or by its file."""
    text = dynamic_broker_configs(configs, broker_config.node_id).get(name)
    if text is not None:
        try:
            return BROKER_CONFIGS.parse(name, text)
        except InvalidConfig:
            pass  # stored by an earlier release: the node's own value stays
    return broker_config.values[name]


class ConfigSchema:
    """The keys of all kinds of resources, and the values that one node's properties file and the defaults give them."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.static = dict(config.raw)
        """The properties file, as text."""
        self.provided = provided_names(config.raw)
        """Those whose values a config provider has given: they are described without."""
        if "node.id" in self.static:
            self.static.setdefault("broker.id", self.static["node.id"])

    @cached_property
    def defaults(self) -> Mapping[str, str | None]:
        """The default of each broker property of Kafka, as text."""
        from kbroker.config.absent import ALL_BROKER_CONFIGS

        return {name: key.format(key.default_value()) for name, key in ALL_BROKER_CONFIGS.items() if key.has_default}

    @property
    def static_min_insync_replicas(self) -> int:
        """``min.insync.replicas`` by the node's file, or its default."""
        return int(self.config.values[MIN_INSYNC_REPLICAS])

    def topic_value(self, configs: ConfigsImage, topic: str, name: str) -> Any:
        """The typed value of a topic's property whose default is the broker property of the same name."""
        for table in (configs.for_topic(topic), configs.for_broker(self.config.node_id), configs.for_broker(None)):
            if name in table:
                try:
                    return TOPIC_CONFIGS.parse(name, table[name])
                except InvalidConfig:
                    pass  # stored by an earlier release: counts as unset
        return self.config.values[name]

    def key(self, resource_type: int, name: str) -> ConfigKey | None:
        """The definition of a property; None if resources of this type have no such property."""
        if resource_type == ResourceType.BROKER:
            return broker_config_key(name)
        table = {ResourceType.TOPIC: TOPIC_CONFIGS, ResourceType.GROUP: GROUP_CONFIGS}.get(resource_type)
        return None if table is None else table.get(name)

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether the property is a list, which APPEND and SUBTRACT can change."""
        key = self.key(resource_type, name)
        return key is not None and key.type is ConfigType.LIST

    def default(self, resource_type: int, name: str) -> str | None:
        """The default as text, if there is one."""
        key = self.key(resource_type, name)
        return key.format(key.default_value()) if key is not None and key.has_default else None
