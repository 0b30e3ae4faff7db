"""Kafka's properties of a node that belong to what kbroker does not have, as tables like those of ``config.broker``.

A node describes them with Kafka's defaults. One that is set to anything else is never passed over in silence: the node
warns of it or, where the rest would be another cluster than the one that was asked for, does not start; while it runs,
such a change is refused. The tables are imported when a property is set or described that ``config.broker`` does not
know, and cost a start without such properties nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kbroker.config.absent import others, sasl, share_groups, streams_groups, tiered_storage, tls
from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.definition import ConfigDef, ConfigKey
from kbroker.config.security import SECURITY_CONFIGS

ABSENT_BROKER_CONFIGS = ConfigDef(
    "broker",
    [
        *others.KEYS,
        *sasl.KEYS,
        *share_groups.KEYS,
        *streams_groups.KEYS,
        *tiered_storage.KEYS,
        *tls.KEYS,
    ],
)
"""Names, types, defaults, limits and update modes are Apache Kafka 4.4.0's; ``no_effect`` says what is missing."""

ALL_BROKER_CONFIGS = ConfigDef(
    "broker", [*BROKER_CONFIGS.values(), *SECURITY_CONFIGS.values(), *ABSENT_BROKER_CONFIGS.values()]
)
"""Every property of a node that Apache Kafka has."""

REFUSED: Mapping[str, str] = {
    "remote.log.storage.system.enable": "there is no tiered storage",
}
"""Properties that Kafka acts on in a way that must not be missing, and why a node does not start with them."""

_LISTENER = re.compile(r"listener\.name\.[^.]+\.")


def absent_key(name: str) -> ConfigKey | None:
    """The key of a property that kbroker lacks, also under ``listener.name.<listener>[.<mechanism>].``; or None."""
    found = _LISTENER.match(name)
    if found is None:
        return ABSENT_BROKER_CONFIGS.get(name)
    rest = name[found.end() :]
    return ABSENT_BROKER_CONFIGS.get(rest) or ABSENT_BROKER_CONFIGS.get(rest.partition(".")[2])


def is_default(key: ConfigKey, text: str) -> bool:
    """Whether ``text`` sets nothing but the default; :class:`InvalidConfig` if it is no value at all."""
    if not text.strip() and not key.default:
        return True
    return bool(key.parse(text) == key.default_value())


def set_otherwise(properties: Mapping[str, str], names: Iterable[str]) -> dict[str, ConfigKey]:
    """The ``names`` of absent properties that are not set to their defaults; ``InvalidConfig`` as above."""
    found = {}
    for name in names:
        key = absent_key(name)
        if key is not None and not is_default(key, properties[name]):
            found[name] = key
    return found
