"""Properties by which a client finds a schema registry: the names are those of Confluent's serializers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.config.config_key import ConfigKey, OneOf
from kbroker.config.table import LIST, LOW, MEDIUM, PASSWORD, STRING, Table

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"

PREFIX: Final = "schema.registry."
"""Stands before the names ``ssl.*`` that are meant for the registry."""


class RegistryProperties(Table):
    """Properties by which a client finds a schema registry."""

    schema_registry_url = LIST("", MEDIUM)
    """Addresses of a schema registry; `--registry` goes before it."""
    basic_auth_credentials_source = STRING("USER_INFO", LOW, OneOf(("USER_INFO",)))
    """Where the registry's user and password are."""
    basic_auth_user_info = PASSWORD(None, MEDIUM)
    """The registry's user and password: `USER:PASSWORD`."""
    bearer_auth_credentials_source = STRING("STATIC_TOKEN", LOW, OneOf(("STATIC_TOKEN",)))
    """Where the registry's token is."""
    bearer_auth_token = PASSWORD(None, MEDIUM)
    """The registry's token, perhaps from a file by a config provider."""


def tls_keys(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    """The keys ``ssl.*`` once more, for connections to the registry."""
    return [key._replace(name=PREFIX + key.name) for key in keys]
