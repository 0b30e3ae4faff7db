"""Properties that do not change while a broker runs although Apache Kafka changes them, and the reason for each.

They have no effect here, are read once, or stand in the node's own file alone. Such a property is neither described as
one that can be changed nor taken. The tables of security are imported for a name that ``config.broker`` does not know.
"""

from __future__ import annotations

from functools import cache

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.provided import PROVIDERS

RUNNING = "{} cannot be changed while kbroker runs"
_CODE = "{} cannot be set over the wire: it names code, and stands in the node's own file"
_AT_START = "{} cannot be set while a node runs yet: it belongs into the node's file, for the next start"
_FILES = "{} cannot be set over the wire: it makes a node read files, and stands in the node's own file"

OF_THE_NODE = dict.fromkeys(("listeners", "listener.security.protocol.map", "metric.reporters"), RUNNING)
"""Properties of ``config.broker`` -> reason, with a place for the name; also a listener's (``listener.name.*``)."""


@cache
def _of_security() -> dict[str, str]:
    """The same for the properties of security."""
    from kbroker.config.security import rules, sasl, tls

    of_tls = {key.name for key in tls.KEYS} - tls.STORES
    return {
        **dict.fromkeys(of_tls, RUNNING),
        **dict.fromkeys(sasl.AT_START, _AT_START),
        **dict.fromkeys(rules.IN_FILE_ONLY, _CODE),
    }


def why_fixed(name: str) -> str:
    """The reason why the property ``name``, perhaps with a listener's prefix, is not changed at run time; or empty."""
    key = BROKER_CONFIGS.get(name)
    if key is None:
        from kbroker.config.absent import absent_key
        from kbroker.config.security import security_key

        if name.startswith(PROVIDERS):
            return _FILES.format(name)
        key = security_key(name) or absent_key(name)
        if key is None:
            return ""
    if key.no_effect:
        return f"{name} cannot be set: {key.no_effect}"
    reasons = OF_THE_NODE if key.name in BROKER_CONFIGS else _of_security()
    return reasons.get(key.name, "").format(name)
