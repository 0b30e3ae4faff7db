"""PLAIN by a rule of one's own: it is given a user and a password, and says whether to let the client in."""

from __future__ import annotations

from typing import Any

from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.rules.decision import Decision
from kbroker.rules.records import Login, Password
from kbroker.security.principal import USER_TYPE, KafkaPrincipal, can_be_sent
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from kbroker.security.sasl.plain import INVALID_LOGIN, PLAIN, check_authorization_id, parse_plain


class LoginRule:
    """The rule of one listener."""

    def __init__(self, rule: Any, name: str, listener: str) -> None:
        """``name`` is the rule's in the node's file."""
        self._calls = AwaitedCalls(rule, "check", name, "the client is not let in")
        self._listener = listener

    async def user(self, host: str, username: str, password: str) -> str | None:
        """The name of the user who is let in; None for nobody."""
        try:
            answer = await self._calls.call(Login(self._listener, host, username, Password(password)))
            if answer is None or answer is False or answer is Decision.DENIED:
                return None
            if answer is True or answer is Decision.ALLOWED:
                return username
            if not is_name(answer):
                raise self._calls.nonsense(answer)
            return str(answer)
        except NoAnswer:
            return None


def is_name(answer: object) -> bool:
    """Whether an answer can be the name of a user."""
    return type(answer) is str and can_be_sent(answer) and answer.isprintable()


class RulePlainServer:
    """The server's side of one authentication, as `kbroker.security.sasl.plain.PlainServer` but for who checks."""

    mechanism = PLAIN
    expires_at_ms: int | None = None

    def __init__(self, rule: LoginRule, host: str) -> None:
        """``host`` is the client's address."""
        self._rule = rule
        self._host = host
        self.is_done = False
        self._user = ""

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        return KafkaPrincipal(USER_TYPE, self._user)

    async def respond(self, token: bytes) -> bytes:
        """Judge a name and a password, by the rule; nothing is left to say. ``SaslError``."""
        if self.is_done:
            raise SaslError("the authentication is complete")
        authorization_id, username, password = parse_plain(token)
        user = await self._rule.user(self._host, username, password)
        if user is None:
            raise SaslAuthenticationError(INVALID_LOGIN)
        check_authorization_id(authorization_id, username)
        self._user = user
        self.is_done = True
        return b""
