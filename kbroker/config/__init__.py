"""Configuration: Kafka's properties under Kafka's names, typed and checked; reading ``server.properties``.

What a property makes a node do is where the property is read, and what changes at run time is metadata
(`kbroker.raft_metadata.config_entries`). Begin with `table`, which explains the tables, and `broker`, a node's. Names,
types, defaults, limits and update modes in all tables are Apache Kafka 4.4.0's (a test compares them with its facts).
"""

from __future__ import annotations

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.broker_config import BrokerConfig, effective_topic_config, redact, with_provided
from kbroker.config.config_key import ConfigDef, ConfigKey, ConfigType, Importance, InvalidConfig, Password, UpdateMode
from kbroker.config.group import (
    GROUP_CONFIG_BOUNDS,
    GROUP_CONFIG_SYNONYMS,
    GROUP_CONFIGS,
    GroupConfig,
    effective_group_config,
    validate_group_configs,
)
from kbroker.config.listeners import Listener, QuorumVoter
from kbroker.config.properties_file import parse_properties, read_properties_file
from kbroker.config.topic import TOPIC_CONFIGS
from kbroker.config.topic_values import TOPIC_CONFIG_SYNONYMS, validate_topic_config, validate_topic_configs

__all__ = [
    "BROKER_CONFIGS",
    "GROUP_CONFIGS",
    "GROUP_CONFIG_BOUNDS",
    "GROUP_CONFIG_SYNONYMS",
    "TOPIC_CONFIGS",
    "TOPIC_CONFIG_SYNONYMS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigKey",
    "ConfigType",
    "GroupConfig",
    "Importance",
    "InvalidConfig",
    "Listener",
    "Password",
    "QuorumVoter",
    "UpdateMode",
    "effective_group_config",
    "effective_topic_config",
    "parse_properties",
    "read_properties_file",
    "redact",
    "validate_group_configs",
    "validate_topic_config",
    "validate_topic_configs",
    "with_provided",
]
