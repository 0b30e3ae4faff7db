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


_FILES_OF_JAVA: Final = re.compile(r"-Djava\.security\.(auth\.login\.config|krb5\.conf)=\S*")
"""The options of ``KAFKA_OPTS`` that count (``tools.cli.kafka_opts``)."""

IN_SECRETS: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
}
"""Variables that name files of the directory of secrets: the stores, and files whose text is a password."""


BITNAMI_PREFIX: Final = "KAFKA_CFG_"
BITNAMI_DATA: Final = "/bitnami/kafka/data"
_BITNAMI_ID: Final = "KAFKA_KRAFT_CLUSTER_ID"
_BITNAMI_ALONE: Final = frozenset({"KAFKA_ENABLE_KRAFT", "KAFKA_VOLUME_DIR", "KAFKA_HOME", _BITNAMI_ID})
"""Variables of Bitnami's image that say nothing about a node beside what its other variables say."""


def without_dialect(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with the variables of Bitnami's image as Apache Kafka's image has them.

    `KAFKA_CFG_NUM_PARTITIONS` is `KAFKA_NUM_PARTITIONS`; with any of them, data are in ``BITNAMI_DATA`` unless a
    variable says otherwise.
    """
    found = {name: value for name, value in environment.items() if not name.startswith(BITNAMI_PREFIX)}
    dialect = {PREFIX + name.removeprefix(BITNAMI_PREFIX): environment[name] for name in environment.keys() - found}
    if not dialect:
        return found
    for name in _BITNAMI_ALONE:
        found.pop(name, None)
    return {"KAFKA_LOG_DIRS": BITNAMI_DATA} | found | dialect


def cluster_id_of(environment: Mapping[str, str]) -> str:
    """Returns the id of the cluster as either image is told it; empty without one."""
    return (environment.get("CLUSTER_ID") or environment.get(_BITNAMI_ID) or "").strip()


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
    return sorted(name for name in NOT_PROPERTIES if _FILES_OF_JAVA.sub("", environment.get(name, "")).strip())
