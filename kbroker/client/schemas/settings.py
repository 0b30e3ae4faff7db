"""Where a schema registry is, and how it is entered: Confluent's properties of serializers."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

from kbroker.config.config_key import InvalidConfig
from kbroker.config.schema_registry import PREFIX, TOKEN, URL, USER_INFO
from kbroker.errors import FatalError
from kbroker.security.sasl.oauthbearer.http import Url, parse_url
from kbroker.value_types import NamedTuple


class Properties(Protocol):
    """Properties by name, typed and with their defaults."""

    def __getitem__(self, name: str, /) -> Any: ...

    def has_any(self, prefix: str, /) -> bool:
        """Whether one that begins so is given."""


class RegistrySettings(NamedTuple):
    """``urls`` are tried in turn; ``authorization`` is the header of that name."""

    urls: tuple[Url, ...]
    authorization: str | None = None
    context: ssl.SSLContext | None = None

    @property
    def is_exposed(self) -> bool:
        """Whether a password or token can be read on the way."""
        return self.authorization is not None and any(url.is_exposed for url in self.urls)


class _TlsValues:
    """The properties ``schema.registry.ssl.*`` under the names that a context is made of."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties

    def __getitem__(self, name: str) -> Any:
        return self._properties[PREFIX + name]


def registry_settings(urls: str | None, properties: Properties | None) -> RegistrySettings | None:
    """The registry of ``urls`` (separated by commas), or else of the properties; None if neither names one.

    ``FatalError`` if what is said makes no sense; it tells no secret.
    """
    given: Sequence[str] = urls.split(",") if urls else properties[URL] if properties is not None else ()
    if not given:
        return None
    parsed: list[Url] = []
    for text in given:
        try:
            url = parse_url(text)
            if url.is_file:
                raise ValueError("it is a file's")
        except ValueError as error:
            hint = f"; a user and password go into {USER_INFO}" if "@" in text else ""
            raise FatalError(f"the address of the schema registry: {error}{hint}") from None
        parsed.append(url._replace(target=url.target.rstrip("/")))
    if properties is None:
        return RegistrySettings(tuple(parsed))
    return RegistrySettings(tuple(parsed), _authorization(properties), _context(properties, parsed))


def _authorization(properties: Properties) -> str | None:
    user, token = properties[USER_INFO], properties[TOKEN]
    if user is not None and token is not None:
        raise FatalError(f"{USER_INFO} and {TOKEN} exclude each other")
    if user is not None:
        if ":" not in user.value:
            raise FatalError(f"{USER_INFO} is not of the form USER:PASSWORD")
        return f"Basic {base64.b64encode(user.value.encode()).decode()}"
    if token is None:
        return None
    text = token.value.strip()
    if not text.isascii() or not text.isprintable() or not text or " " in text:
        raise FatalError(f"{TOKEN} is no token")
    return f"Bearer {text}"


def _context(properties: Properties, urls: list[Url]) -> ssl.SSLContext | None:
    """The context for https; None where the machine's own trust is enough."""
    if all(url.scheme == "http" for url in urls) or not properties.has_any(f"{PREFIX}ssl."):
        return None
    from kbroker.security.tls.contexts import client_context

    try:
        return client_context(_TlsValues(properties))
    except InvalidConfig as error:
        raise FatalError(f"for the schema registry: {error.message}") from None
