"""``KAFKA_*`` environment variables as properties, by the rules of Apache Kafka's container image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"

NOT_PROPERTIES: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
"""For the JVM and its logging (``KafkaDockerWrapper``): these never become properties."""


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``KAFKA_LOG_DIRS=/data`` is ``log.dirs=/data``; in a name ``_`` is a dot, ``__`` a ``_`` and ``___`` a ``-``.

    Variables that do not begin with ``KAFKA_``, and those that are for a JVM, are left out.
    """
    return {
        property_name(name): value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name != PREFIX and name not in NOT_PROPERTIES
    }


def derived_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that Apache Kafka's image derives: without ``listeners``, a broker listens on all addresses at its
    advertised ports."""
    advertised = environment.get("KAFKA_ADVERTISED_LISTENERS", "")
    if not advertised or environment.get("KAFKA_LISTENERS") or environment.get("KAFKA_PROCESS_ROLES") == "controller":
        return {}
    return {"listeners": re.sub("://[^:]*:", "://0.0.0.0:", advertised)}


def property_name(variable: str) -> str:
    """The property that a variable sets. Longer runs of ``_`` are taken apart from the left, three at a time."""
    name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")


def without_effect(environment: Mapping[str, str]) -> list[str]:
    """Variables of Apache Kafka's image that mean nothing where there is no JVM, if they are set to something."""
    return sorted(name for name in NOT_PROPERTIES if environment.get(name, "").strip())
