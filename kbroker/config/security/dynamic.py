"""Properties of security that may change while a node runs (Kafka's ``DynamicSecurityConfigs``)."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config.definition import ConfigKey, InvalidConfig
from kbroker.config.provided import PROVIDERS
from kbroker.config.security import rules, sasl, security_key, tls

LISTENER_PREFIX = "listener.name."

TLS_STORES = frozenset(
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
"""Properties that a listener reads again, with the listener's prefix only (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""

_OF_TLS = frozenset(key.name for key in tls.KEYS)


def why_fixed(name: str, key: ConfigKey | None) -> str:
    """The reason why a property of security, perhaps a listener's, is not changed while a node runs; or empty.

    ``key``: its `security_key`.
    """
    if name.startswith(PROVIDERS):
        return f"{name} cannot be set over the wire: it makes a node read files, and stands in the node's own file"
    if key is None:
        return ""
    if key.name in rules.IN_FILE_ONLY:
        return f"{name} cannot be set over the wire: it names code, and stands in the node's own file"
    if key.name in sasl.AT_START:
        return f"{name} cannot be set while a node runs yet: it belongs into the node's file, for the next start"
    if key.name in _OF_TLS and key.name not in TLS_STORES:
        return f"{name} cannot be changed while kbroker runs"
    return ""


def check_changes(configs: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Judge a broker's dynamic properties of its listeners' security. :class:`InvalidConfig`.

    ``before`` are those it has already, which may stay.
    """
    for name, text in configs.items():
        key = security_key(name)
        if key is None or before.get(name) == text:
            continue
        reason = why_fixed(name, key)
        if not reason and key.name == name and name in TLS_STORES:
            reason = f"{name} cannot be changed while kbroker runs"
        if reason:
            raise InvalidConfig(reason)
        key.parse(text)
