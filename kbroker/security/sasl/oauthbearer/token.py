"""A token that has been judged, and who judges it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

OAUTHBEARER = "OAUTHBEARER"


class BearerToken(NamedTuple):
    """A token that is valid: whose it is, and until when. The token itself is not in it."""

    principal_name: str
    expires_at_ms: int | None
    """Milliseconds since 1970; None for a token without an end."""
    scope: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = {}
    """All claims, for those who make more of them."""

    def __repr__(self) -> str:
        return f"<token of {self.principal_name}>"


class TokenRefused(Exception):
    """A token that lets nobody in. The text is for logs and has no part of the token.

    ``status``, ``scope`` and ``configuration`` are told to the client (RFC 7628, section 3.2.2).
    """

    def __init__(
        self, reason: str, status: str = "invalid_token", scope: str | None = None, configuration: str | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope
        self.configuration = configuration


Validator = Callable[[str], BearerToken | Awaitable[BearerToken]]
"""Judges a token: a :class:`BearerToken`, perhaps later, or :class:`TokenRefused`."""
