"""The two sides that each mechanism has, as those see them who carry the messages, and their errors.

None of the errors tells a secret.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from kbroker.security.principal import KafkaPrincipal

GSSAPI = "GSSAPI"
"""The mechanism of Kerberos, which is Kafka's default."""


class SaslError(Exception):
    """An authentication that failed (Java's ``SaslException``). The text is for logs: a client is told less."""


class SaslAuthenticationError(SaslError):
    """An authentication that failed, with a text that the client is told (Kafka's ``SaslAuthenticationException``)."""

    def __init__(self, text: str, detail: str = "") -> None:
        """``detail`` is what only the log may say beyond ``text``."""
        super().__init__(text)
        self.detail = detail


class SaslServer(Protocol):
    """The server's side of one authentication."""

    mechanism: str

    @property
    def is_done(self) -> bool:
        """Whether the client has been let in. ``principal`` and ``expires_at_ms`` hold from then on."""

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""

    @property
    def expires_at_ms(self) -> int | None:
        """When the client's credential ends, in milliseconds since 1970; None if it does not."""

    def respond(self, token: bytes) -> bytes | Awaitable[bytes]:
        """The answer to a client's message, to be awaited if others must be asked or a thread does it.

        :class:`~kbroker.security.sasl.mechanism.SaslError` lets the client in no more.
        """


class SaslClient(Protocol):
    """The client's side of one authentication."""

    mechanism: str
    is_done: bool
    """Whether all is said that the client has to say, and a server that proves itself has done so."""

    def first(self) -> bytes:
        """The message that begins it."""

    def respond(self, challenge: bytes) -> bytes:
        """The message that follows upon the server's; `SaslError` if none does."""


class Settings(Protocol):
    """A client's properties, or those by which a node connects, typed and with Kafka's defaults."""

    def __getitem__(self, name: str, /) -> Any: ...
