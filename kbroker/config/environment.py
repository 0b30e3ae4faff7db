"""``KAFKA_*`` environment variables as properties, by the rules of Apache Kafka's container image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbroker.errors import FatalError

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


IN_SECRETS: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
}
"""Variables that name files of the directory of secrets: the stores, and files whose text is a password."""


def properties_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``KAFKA_LOG_DIRS=/data`` is ``log.dirs=/data``; in a name ``_`` is a dot, ``__`` a ``_`` and ``___`` a ``-``.

    Variables that do not begin with ``KAFKA_``, and those that are for a JVM, are left out.
    """
    return {
        property_name(name): value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name != PREFIX and name not in NOT_PROPERTIES and name not in IN_SECRETS
    }


def derived_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The properties that Apache Kafka's image derives: without ``listeners``, a broker listens on all addresses at its
    advertised ports."""
    advertised = environment.get("KAFKA_ADVERTISED_LISTENERS", "")
    if not advertised or environment.get("KAFKA_LISTENERS") or environment.get("KAFKA_PROCESS_ROLES") == "controller":
        return {}
    return {"listeners": re.sub("://[^:]*:", "://0.0.0.0:", advertised)}


def secret_properties(environment: Mapping[str, str], secrets: Path) -> dict[str, str]:
    """The properties that stand in files of a directory, by the variables that name them.

    :class:`FatalError` if a file is missing. A store needs no password here: PEM has none.
    """
    found: dict[str, str] = {}
    for variable, name in IN_SECRETS.items():
        file = environment.get(variable, "").strip()
        if not file:
            continue
        path = secrets / file
        try:
            # As a shell gives the content of a file: without the ends of lines after it.
            text = path.read_text("utf-8").rstrip("\n") if name.endswith(".password") else ""
        except (OSError, UnicodeDecodeError) as error:
            raise FatalError(
                f"{variable}: cannot read {path}: {getattr(error, 'strerror', None) or 'no text'}"
            ) from None
        if not path.exists():
            raise FatalError(f"{variable}: {path} does not exist")
        found[name] = text if name.endswith(".password") else str(path)
    return found


def property_name(variable: str) -> str:
    """The property that a variable sets. Longer runs of ``_`` are taken apart from the left, three at a time."""
    name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")


def without_effect(environment: Mapping[str, str]) -> list[str]:
    """Variables of Apache Kafka's image that mean nothing where there is no JVM, if they are set to something."""
    return sorted(name for name in NOT_PROPERTIES if environment.get(name, "").strip())
