"""The part of the protocol explorer that sees logins (``node.explorer``)."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Protocol

from kbroker.security.principal import KafkaPrincipal


class ShownConnection(Protocol):
    """The facts that are shown of a client's connection; what stands in for one has them too, while it logs in."""

    listener_name: str
    is_controller: bool
    peer: str
    principal: KafkaPrincipal
    client_software_name: str
    client_software_version: str


class LoginTap(Protocol):
    """Sees requests of clients that have no connection yet."""

    is_watched: bool
    """Whether anybody looks."""

    async def login(
        self, connection: ShownConnection, frame: bytes, answer: Awaitable[bytes], api_keys: Collection[int]
    ) -> bytes:
        """Wait for the answer to a request of a login, and show both. Raises what ``answer`` does.

        Of a frame that is no request of ``api_keys`` only the size is shown: it may be a token without a header.
        ``connection`` takes the place of the client's connection.
        """

    def login_failed(self, connection: ShownConnection) -> None:
        """A client that logged in with this ``connection`` is not let in, or has gone."""
