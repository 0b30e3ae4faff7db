"""Configuration: Kafka's properties under Kafka's names, typed and checked; reading ``server.properties``."""

from __future__ import annotations

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.broker_config import BrokerConfig, effective_topic_config, redact
from kbroker.config.definition import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    InvalidConfig,
    Password,
    UpdateMode,
)
from kbroker.config.group import GROUP_CONFIGS
from kbroker.config.listeners import Listener, QuorumVoter
from kbroker.config.properties import parse_properties, read_properties_file
from kbroker.config.topic import TOPIC_CONFIGS
from kbroker.config.topic_values import (
    TOPIC_CONFIG_SYNONYMS,
    validate_topic_config,
    validate_topic_configs,
)

__all__ = [
    "BROKER_CONFIGS",
    "GROUP_CONFIGS",
    "TOPIC_CONFIGS",
    "TOPIC_CONFIG_SYNONYMS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigKey",
    "ConfigType",
    "Importance",
    "InvalidConfig",
    "Listener",
    "Password",
    "QuorumVoter",
    "UpdateMode",
    "effective_topic_config",
    "parse_properties",
    "read_properties_file",
    "redact",
    "validate_topic_config",
    "validate_topic_configs",
]
