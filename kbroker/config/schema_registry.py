"""Properties by which a client finds a schema registry: the names are those of Confluent's serializers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.config.definition import ConfigKey, OneOf
from kbroker.config.shorthand import LIST, LOW, MEDIUM, PASSWORD, STRING

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"

PREFIX: Final = "schema.registry."
"""Stands before the names ``ssl.*`` that are meant for the registry."""

KEYS: Final = (
    ConfigKey(URL, LIST, "", MEDIUM, "Addresses of a schema registry; `--registry` goes before it."),
    ConfigKey(
        "basic.auth.credentials.source",
        STRING,
        "USER_INFO",
        LOW,
        "Where the registry's user and password are.",
        validator=OneOf(("USER_INFO",)),
    ),
    ConfigKey(USER_INFO, PASSWORD, None, MEDIUM, "The registry's user and password: `USER:PASSWORD`."),
    ConfigKey(
        "bearer.auth.credentials.source",
        STRING,
        "STATIC_TOKEN",
        LOW,
        "Where the registry's token is.",
        validator=OneOf(("STATIC_TOKEN",)),
    ),
    ConfigKey(TOKEN, PASSWORD, None, MEDIUM, "The registry's token, perhaps from a file by a config provider."),
)


def tls_keys(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    """The keys ``ssl.*`` once more, for connections to the registry."""
    return [key._replace(name=PREFIX + key.name, doc=f"{key.doc} For the registry.") for key in keys]
