"""Properties of security that are set for nothing: no listener of the node has the TLS or SASL that they are about."""

from __future__ import annotations

import re

from kbroker.config.broker import BrokerProperties

_SECURED = re.compile(r"(?:listener\.name\.([^.]+)\.(?:([^.]+)\.)?)?(ssl|sasl)\.")
_PROTOCOLS = {"ssl": ("SSL", "SASL_SSL"), "sasl": ("SASL_PLAINTEXT", "SASL_SSL")}


def of_no_listener(config: BrokerProperties) -> list[str]:
    """Names of the node's ``ssl.*`` and ``sasl.*`` properties that no listener takes, in order.

    With ``listener.name.NAME.`` before it a property is for that listener alone. Listeners of controllers count on a
    broker, too: it connects to them by their protocol. With ``listener.name.NAME.MECHANISM.`` before it a property is
    for clients of that mechanism, or for the node's own way to other nodes. Names that have no effect in any case are
    left out.
    """
    protocols = {listener.name: listener.security_protocol for listener in config.listeners}
    for name in config.controller_listener_names:
        protocols.setdefault(name, config.listener_security_protocol_map.get(name, "PLAINTEXT"))
    found = []
    for name in sorted(config.raw.keys() - config.absent.keys() - set(config.unknown)):
        matched = _SECURED.match(name)
        if matched is None:
            continue
        listener, mechanism, about = matched.groups()
        concerned = list(protocols.values()) if listener is None else [protocols.get(listener.upper(), "")]
        is_spoken = any(protocol in _PROTOCOLS[about] for protocol in concerned)
        if not is_spoken or (mechanism is not None and mechanism.upper() not in _mechanisms(config, listener)):
            found.append(name)
    return found


def _mechanisms(config: BrokerProperties, listener: str) -> set[str]:
    """The SASL mechanisms that a listener offers, and those by which the node itself logs in to others."""
    from kbroker.config.security import SecurityValues

    values = SecurityValues(config.values, listener, "")
    own = (values["sasl.mechanism.inter.broker.protocol"], values["sasl.mechanism.controller.protocol"])
    return {str(name).strip().upper() for name in (*(values["sasl.enabled.mechanisms"] or ()), *own)}
