"""``KAFKA_OPTS``: the files for security that Apache Kafka's JVM is given by its options.

``-Djava.security.auth.login.config=FILE`` names a JAAS file. Its context ``LISTENER.KafkaServer``, or else
``KafkaServer``, has the login modules of a listener (``JaasContext.loadServerContext``); each serves a mechanism.
``-Djava.security.krb5.conf=FILE`` names Kerberos' configuration.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Final

from kbroker.errors import FatalError

JAAS_FILE: Final = "java.security.auth.login.config"
KRB5_FILE: Final = "java.security.krb5.conf"
_CONTEXT: Final = "KafkaServer"


def java_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the JVM that ``KAFKA_OPTS`` sets with ``-DNAME=VALUE``; other words are left out."""
    try:
        words = shlex.split(environment.get("KAFKA_OPTS", ""))
    except ValueError as error:
        raise FatalError(f"KAFKA_OPTS: {error}") from None
    pairs = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}


def with_java_options(properties: Mapping[str, str], environment: MutableMapping[str, str]) -> dict[str, str]:
    """Returns the properties of a node with those that the files of ``KAFKA_OPTS`` bring; what is there stays.

    Kerberos' file becomes ``KRB5_CONFIG`` of the environment, for its library. `FatalError` if a file cannot be read.
    """
    if "KAFKA_OPTS" not in environment:
        return dict(properties)
    options = java_options(environment)
    if options.get(KRB5_FILE):
        environment.setdefault("KRB5_CONFIG", options[KRB5_FILE])
    if not options.get(JAAS_FILE):
        return dict(properties)
    return dict(_logins(properties, Path(options[JAAS_FILE]))) | dict(properties)


def _logins(properties: Mapping[str, str], path: Path) -> Iterator[tuple[str, str]]:
    """Yields ``listener.name.LISTENER.MECHANISM.sasl.jaas.config`` for what a JAAS file has."""
    from kbroker.security.sasl.jaas import JaasError, LoginModule, jaas_line, parse_jaas_file

    try:
        contexts = parse_jaas_file(path.read_text("utf-8"), lambda name: name.rpartition(".")[2] == _CONTEXT)
    except JaasError as error:
        raise FatalError(f"KAFKA_OPTS: {path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"KAFKA_OPTS: cannot read {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    mechanisms = {
        LoginModule.PLAIN: ["plain"],
        LoginModule.SCRAM: ["scram-sha-256", "scram-sha-512"],
        LoginModule.OAUTHBEARER: ["oauthbearer"],
        LoginModule.KERBEROS: ["gssapi"],
    }
    for listener in _listeners(properties):
        for entry in contexts.get(f"{listener}.{_CONTEXT}", contexts.get(_CONTEXT, ())):
            line = jaas_line(entry.module, entry.options)
            for mechanism in mechanisms[entry.module]:
                yield f"listener.name.{listener}.{mechanism}.sasl.jaas.config", line


def _listeners(properties: Mapping[str, str]) -> set[str]:
    """Returns the names of the listeners of a node and of its controllers, in lower case."""
    named = [each.partition("://")[0] for each in properties.get("listeners", "").split(",")]
    for name in ("controller.listener.names", "inter.broker.listener.name"):
        named += properties.get(name, "").split(",")
    return {name.strip().lower() for name in named if name.strip()}
