"""The part of the protocol explorer that sees logins (``node.explorer``)."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any, Protocol


class LoginTap(Protocol):
    """Sees requests of clients that have no connection yet."""

    is_watched: bool
    """Whether anybody looks."""

    async def login(self, connection: Any, frame: bytes, answer: Awaitable[bytes], api_keys: Collection[int]) -> bytes:
        """Wait for the answer to a request of a login, and show both. Raises what ``answer`` does.

        Of a frame that is no request of ``api_keys`` only the size is shown: it may be a token without a header.
        ``connection`` takes the place of the client's connection.
        """
        ...

    def login_failed(self, connection: Any) -> None:
        """A client that logged in with this ``connection`` is not let in, or has gone."""
        ...
