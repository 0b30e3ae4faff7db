"""The client's side of OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.security.sasl.oauthbearer.messages import AFTER_ERROR, initial_response
from kbroker.security.sasl.oauthbearer.token import OAUTHBEARER


class OAuthBearerClient:
    """The client's side of one authentication."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._first = initial_response(token, extensions)
        self.is_done = False

    def first(self) -> bytes:
        """The message with the token."""
        return self._first

    def respond(self, challenge: bytes) -> bytes:
        """Nothing after an empty answer; after an error the message by which the server tells it in its own way."""
        if challenge:
            return AFTER_ERROR
        self.is_done = True
        return b""
