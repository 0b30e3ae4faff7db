"""Properties whose values are secrets, told by their names alone: one rule for logs, dumps and the explorer."""

from __future__ import annotations

from typing import Final

from kbroker.config.broker import BROKER_CONFIGS, OWN_CONFIGS
from kbroker.config.config_key import ConfigKey
from kbroker.config.group import GROUP_CONFIGS
from kbroker.config.topic import TOPIC_CONFIGS

SECRET_WORDS: Final = (
    "password",
    "passphrase",
    "secret",
    "credential",
    "jaas",
    "token",
    "user.info",
    "keystore.key",
    "certificate.chain",
)

_OWN: Final = "kbroker."
"""Begins the names of loggers, and of properties that Apache Kafka does not have."""


def sounds_secret(name: str) -> bool:
    """Whether the name of an unknown property says that it is a secret."""
    return any(word in name.lower() for word in SECRET_WORDS)


def is_secret_property(name: str) -> bool:
    """Whether no text shows the value of a property of any resource.

    It is shown only if the property is known, and is no password: of an unknown one nobody knows what it holds.
    """
    key = node_property(name) or _other_property(name)
    if key is not None:
        return key.sensitive
    return sounds_secret(name) or not (name.startswith(_OWN) or name == "root")


def node_property(name: str) -> ConfigKey | None:
    """The key of a property of a node, also of one that kbroker lacks, or under the prefix of a listener."""
    from kbroker.config.absent import absent_key
    from kbroker.config.security import security_key

    return BROKER_CONFIGS.get(name) or OWN_CONFIGS.get(name) or security_key(name) or absent_key(name)


def _other_property(name: str) -> ConfigKey | None:
    from kbroker.config.client_metrics import CLIENT_METRICS_CONFIGS

    return TOPIC_CONFIGS.get(name) or GROUP_CONFIGS.get(name) or CLIENT_METRICS_CONFIGS.get(name)
