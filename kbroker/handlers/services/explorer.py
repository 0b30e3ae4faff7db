"""The part of the protocol explorer that sees logins (``node.explorer``)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol


class LoginTap(Protocol):
    """Sees requests of clients that have no connection yet."""

    is_watched: bool
    """Whether anybody looks."""

    async def login(self, connection: Any, frame: bytes, answer: Awaitable[bytes]) -> bytes:
        """Wait for the answer to a request of a login, and show both. Raises what ``answer`` does.

        ``connection`` takes the place of the client's connection.
        """
        ...
