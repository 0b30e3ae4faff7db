"""OAUTHBEARER by a rule of one's own: it is given a token, and says whose it is and until when."""

from __future__ import annotations

import math
from typing import Any

from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.node.rules.logins import is_name
from kbroker.rules.decision import Decision
from kbroker.rules.records import Password, Token, TokenUser
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerServer
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused


class TokenRule:
    """The rule of one listener."""

    def __init__(self, rule: Any, name: str, listener: str) -> None:
        """``name`` is the rule's in the node's file."""
        self._calls = AwaitedCalls(rule, "validate", name, "the client is not let in")
        self._listener = listener

    def server(self, host: str) -> OAuthBearerServer:
        """The server's side of the authentication of a client of this address."""

        async def validate(token: str) -> BearerToken:
            return await self._judge(Token(self._listener, host, Password(token)))

        return OAuthBearerServer(validate)

    async def _judge(self, token: Token) -> BearerToken:
        try:
            answer = await self._calls.call(token)
            if answer is None or answer is False or answer is Decision.DENIED:
                raise TokenRefused("the rule does not take the token")
            if not isinstance(answer, TokenUser) or not _makes_sense(answer):
                raise self._calls.nonsense(answer)
        except NoAnswer:
            raise TokenRefused("the rule has not judged the token") from None
        return BearerToken(answer.name, int(answer.expires_at * 1000), frozenset(answer.scopes))


def _makes_sense(user: TokenUser) -> bool:
    is_number = isinstance(user.expires_at, int | float) and not isinstance(user.expires_at, bool)
    if not is_number or not math.isfinite(user.expires_at):
        return False
    return is_name(user.name) and isinstance(user.scopes, frozenset | set)
