"""Properties of a node that have no effect, will be gone, or are dangerous: told at the start."""

from __future__ import annotations

import logging
import re
from collections.abc import Container

from kbroker.config import BROKER_CONFIGS, BrokerConfig
from kbroker.tools.cli.parser import did_you_mean

log = logging.getLogger("kbroker")

DEPRECATED = {
    "broker.id": "set node.id",
    "group.coordinator.rebalance.protocols": "features (group.version, streams.version, share.version) say what is on",
    "log.cleaner.enable": "the cleaner will always run",
}
"""Properties that will be gone (KIP-1232, KIP-1237, and KIP-1148 for the value false), and what to do."""

OF_CONTROLLERS = ("default.replication.factor", "num.partitions")
"""Properties that brokers will not read any more (KIP-1211)."""

_SECURED = r"(?:listener\.name\.([^.]+)\.(?:([^.]+)\.)?)?(ssl|sasl)\."
_PROTOCOLS = {"ssl": ("SSL", "SASL_SSL"), "sasl": ("SASL_PLAINTEXT", "SASL_SSL")}


def warn_about(config: BrokerConfig, *, chosen_here: Container[str] = ()) -> None:
    """Tell what in the configuration has no effect (but for names ``chosen_here``), and what is dangerous."""
    if config.unknown:
        from kbroker.config.security.authorization import OF_AUTHORIZER

        unknown = [name for name in config.unknown if name not in OF_AUTHORIZER]
        if unknown:
            told = ", ".join(unknown) + did_you_mean(unknown, BROKER_CONFIGS)
            log.warning("unknown properties, which have no effect: %s", told)
        if len(unknown) < len(config.unknown):
            log.warning(
                "authorizer.class.name is not set, so everybody may do everything; without effect: %s",
                ", ".join(name for name in config.unknown if name in OF_AUTHORIZER),
            )
    for reason in sorted(set(config.absent.values())):
        names = [name for name, missing in config.absent.items() if missing == reason]
        log.warning("%s: properties without effect: %s", reason, ", ".join(names))
    without_effect = [name for name in config.without_effect if name not in chosen_here]
    if without_effect:
        log.info("properties without effect in kbroker: %s", ", ".join(without_effect))
    if "metric.reporters" in config.raw:
        from kbroker.config.telemetry import java_reporters

        classes = java_reporters(config.metric_reporters)
        if classes:
            log.warning("metric.reporters: Java classes cannot be loaded, and have no effect: %s", ", ".join(classes))
    for name, instead in DEPRECATED.items():
        if name in config.raw and not (name == "log.cleaner.enable" and config.log_cleaner_enable):
            log.warning("%s is deprecated, and Apache Kafka 5.0 will not have it: %s", name, instead)
    if not config.is_controller:
        of_controllers = [name for name in OF_CONTROLLERS if name in config.raw]
        if of_controllers:
            log.warning(
                "set on a broker, but Apache Kafka 5.0 will read them on controllers alone: %s",
                ", ".join(of_controllers),
            )
    if any("ssl." in name or "sasl." in name for name in config.raw):
        unused = of_no_listener(config)
        if unused:
            log.warning(
                "no listener has the TLS or SASL that these are about; they have no effect: %s", ", ".join(unused)
            )
    if any(not listener.is_loopback for listener in config.listeners):
        from kbroker.tools.cli.exposure import warn_of_exposure

        warn_of_exposure(config)


def of_no_listener(config: BrokerConfig) -> list[str]:
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
        matched = re.match(_SECURED, name)
        if matched is None:
            continue
        listener, mechanism, about = matched.groups()
        concerned = list(protocols.values()) if listener is None else [protocols.get(listener.upper(), "")]
        is_spoken = any(protocol in _PROTOCOLS[about] for protocol in concerned)
        if not is_spoken or (mechanism is not None and mechanism.upper() not in _mechanisms(config, listener)):
            found.append(name)
    return found


def _mechanisms(config: BrokerConfig, listener: str) -> set[str]:
    """The SASL mechanisms that a listener offers, and those by which the node itself logs in to others."""
    from kbroker.config.security import SecurityValues

    values = SecurityValues(config.values, listener, "")
    own = (values["sasl.mechanism.inter.broker.protocol"], values["sasl.mechanism.controller.protocol"])
    return {str(name).strip().upper() for name in (*(values["sasl.enabled.mechanisms"] or ()), *own)}
