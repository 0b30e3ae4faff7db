"""Kafka's properties of security, as tables like those of `kbroker.config.broker`, and checks of single ones.

Each may be set for one listener (``listener.name.<listener>.``), those of SASL also for one of its mechanisms
(``listener.name.<listener>.<mechanism>.``); what they make a node do is in `kbroker.security`. Begin with
`SecurityValues`. All is imported when such a property is set or described, or a listener is secure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.config_key import ConfigDef, ConfigKey, Range
from kbroker.config.listeners import LISTENER_PREFIX
from kbroker.config.security.authorization import AuthorizationProperties
from kbroker.config.security.rules import RuleProperties
from kbroker.config.security.sasl import OAuthProperties, SaslProperties
from kbroker.config.security.tls import TlsProperties
from kbroker.config.table import CLUSTER_WIDE, LIST, LONG, LOW, MEDIUM, PASSWORD, Table


class ProviderProperties(Table):
    """The property that names config providers (KIP-297); `kbroker.config.providers` reads it, with the file."""

    config_providers = LIST("", LOW, mode=CLUSTER_WIDE)
    """Names of providers that put values in the place of variables in this file, with `config.providers.NAME.class`;
    from the file alone, never over the wire."""


class DelegationTokenProperties(Table):
    """Properties of delegation tokens (KIP-48)."""

    delegation_token_expiry_check_interval_ms = LONG("3600000", LOW, Range(1))
    """Milliseconds between two looks of the active controller for delegation tokens that have expired."""
    delegation_token_expiry_time_ms = LONG("86400000", MEDIUM, Range(1))
    """Milliseconds for which a delegation token is valid before it is renewed."""
    delegation_token_max_lifetime_ms = LONG("604800000", MEDIUM, Range(1))
    """Milliseconds after which a delegation token cannot be renewed any more."""
    delegation_token_secret_key = PASSWORD(None, MEDIUM)
    """Key from which the secrets of delegation tokens are made, the same on all nodes. Without it there are none."""


SECURITY_CONFIGS = ConfigDef(
    "broker",
    [
        *AuthorizationProperties.KEYS,
        *DelegationTokenProperties.KEYS,
        *OAuthProperties.KEYS,
        *ProviderProperties.KEYS,
        *RuleProperties.KEYS,
        *SaslProperties.KEYS,
        *TlsProperties.KEYS,
    ],
)
OF_LISTENERS = frozenset({"max.connection.creation.rate", "max.connections"})
"""Other properties that a listener may have of its own."""


def security_key(name: str) -> ConfigKey | None:
    """The key of a property of security, also under ``listener.name.<listener>[.<mechanism>].``; or None."""
    found = LISTENER_PREFIX.match(name)
    if found is None:
        return SECURITY_CONFIGS.get(name)
    rest = name[found.end() :]
    if rest in OF_LISTENERS:
        return BROKER_CONFIGS[rest]
    return SECURITY_CONFIGS.get(rest) or SECURITY_CONFIGS.get(rest.partition(".")[2])


class SecurityValues:
    """The properties of security as they hold for one listener, typed.

    Of a listener's, its mechanism's and the node's own values the most particular one holds, as in Kafka
    (``AbstractConfig.valuesWithPrefixOverride``).
    """

    def __init__(self, values: Mapping[str, Any], listener: str = "", mechanism: str = "") -> None:
        """``values`` are typed, by their full names; those that are not there have their defaults."""
        self._values = values
        self._prefixes: list[str] = []
        if listener:
            prefix = f"listener.name.{listener.lower()}."
            if mechanism:
                self._prefixes.append(f"{prefix}{mechanism.lower()}.")
            self._prefixes.append(prefix)
        self._prefixes.append("")

    def __getitem__(self, name: str) -> Any:
        for prefix in self._prefixes:
            if prefix + name in self._values:
                return self._values[prefix + name]
        return SECURITY_CONFIGS[name].default_value()
