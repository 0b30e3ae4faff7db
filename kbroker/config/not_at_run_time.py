"""Properties that Apache Kafka takes while a broker runs, and kbroker does not, or takes without effect; and why.

A property without effect is described and stored all the same, as in Apache Kafka; the node warns of it. The tables of
security are imported for a name that ``config.broker`` does not know.
"""

from __future__ import annotations

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.config_key import ConfigKey, UpdateMode
from kbroker.config.listeners import LISTENER_PREFIX
from kbroker.config.provided import PROVIDERS

_CODE = "{} cannot be set over the wire: it names code, and stands in the node's own file"
_PLACES = "{} cannot be set over the wire: it names files or hosts, and stands in the node's own file"

_OWN_FILE = {
    PROVIDERS: "a node looks up variables in its own file alone, at its start",
    "metric.reporters": "a node has the receivers that its own file names, from its start on",
    "sasl.kerberos.kinit.cmd": "it names a command, which a node takes from its own file alone",
}
"""Name -> why it changes nothing while a node runs."""


def run_time_key(name: str) -> ConfigKey | None:
    """The key of any property that a request may name, also under ``listener.name.<listener>[.<mechanism>].``."""
    from kbroker.config.absent import absent_key
    from kbroker.config.run_time_only import broker_config_key
    from kbroker.config.security import security_key

    found = LISTENER_PREFIX.match(name)
    if found is None:
        return broker_config_key(name)
    return security_key(name) or absent_key(name) or BROKER_CONFIGS.get(name[found.end() :])


def why_refused(name: str) -> str:
    """The reason why no request may set a property for one listener, although any may in Apache Kafka; or empty."""
    if not name.startswith("listener.name."):
        return ""  # what Apache Kafka takes of these is not dangerous, or without effect here
    from kbroker.config.security import rules, sasl

    key = run_time_key(name)
    if key is None or key.name == rules.PRINCIPAL_BUILDER:
        return ""
    if key.name in rules.IN_FILE_ONLY:
        return _CODE.format(name)
    is_place = key in sasl.OAuthProperties.KEYS and key.update_mode is UpdateMode.READ_ONLY
    return _PLACES.format(name) if is_place else ""


def why_without_effect(name: str) -> str:
    """The reason why the property ``name``, perhaps with a listener's prefix, changes nothing at run time; or empty."""
    if name.startswith(f"{PROVIDERS}."):
        return _OWN_FILE[PROVIDERS]
    key = run_time_key(name)
    return "" if key is None else key.no_effect or _OWN_FILE.get(key.name, "")
