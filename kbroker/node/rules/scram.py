"""SCRAM by a rule of one's own: it is given a user's name, and answers with the user's credential."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kbroker.node.rules.awaited import AwaitedCalls, NoAnswer
from kbroker.rules.decision import Decision
from kbroker.rules.records import ScramLogin
from kbroker.security.principal import USER_TYPE, KafkaPrincipal, can_be_sent
from kbroker.security.sasl.scram import (
    MIN_ITERATIONS,
    CredentialForm,
    ScramAccount,
    ScramCredential,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    claimed_user,
)

_MOST_FORMS: Final = 16
"""Forms of credentials that are remembered, for users whom nobody knows to look alike."""


class ScramRule:
    """The rule of one listener and mechanism."""

    def __init__(self, rule: Any, name: str, listener: str, mechanism: ScramMechanism) -> None:
        """``name`` is the rule's in the node's file."""
        self._calls = AwaitedCalls(rule, "credential", name, "the client is not let in")
        self._listener = listener
        self.mechanism = mechanism
        self.forms: Counter[CredentialForm] = Counter()
        """The forms of the credentials that the rule has given."""

    async def account(self, host: str, username: str) -> ScramAccount | None:
        """The account of a user; None for nobody."""
        if not (can_be_sent(username) and username.isprintable()):
            return None
        try:
            answer = await self._calls.call(ScramLogin(self._listener, host, username, self.mechanism))
            if answer is None or answer is False or answer is Decision.DENIED:
                return None
            if not isinstance(answer, ScramCredential) or not self._makes_sense(answer):
                raise self._calls.nonsense(answer)
        except NoAnswer:
            return None
        form = CredentialForm.of(answer.salt, answer.iterations)
        if form in self.forms or len(self.forms) < _MOST_FORMS:
            self.forms[form] += 1
        return ScramAccount(answer, KafkaPrincipal(USER_TYPE, username))

    def _makes_sense(self, credential: ScramCredential) -> bool:
        size = len(self.mechanism.hash(b""))
        keys = (credential.stored_key, credential.server_key)
        return (
            type(credential.salt) is bytes
            and bool(credential.salt)
            and all(type(key) is bytes and len(key) == size for key in keys)
            and type(credential.iterations) is int
            and credential.iterations >= MIN_ITERATIONS
        )


class RuleScramServer:
    """The server's side of one authentication, as `ScramServer` but for who knows the credential."""

    def __init__(
        self, rule: ScramRule, host: str, tokens: ScramLookup, make: Callable[[ScramLookup], ScramServer]
    ) -> None:
        """``host`` is the client's address; ``tokens`` finds the accounts of delegation tokens, which no rule knows."""
        self.mechanism = rule.mechanism.mechanism_name
        self._rule = rule
        self._host = host
        self._tokens = tokens
        self._make = make
        self._server: ScramServer | None = None

    @property
    def is_done(self) -> bool:
        """Whether the client has been let in."""
        return self._server is not None and self._server.is_done

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        assert self._server is not None
        return self._server.principal

    @property
    def expires_at_ms(self) -> int | None:
        """When the credential ends."""
        return None if self._server is None else self._server.expires_at_ms

    async def respond(self, token: bytes) -> bytes:
        """The answer to the client's next message, the first of which asks the rule. ``SaslError``."""
        if self._server is None:
            name, is_token = claimed_user(token)
            account = self._tokens(name, True) if is_token else await self._rule.account(self._host, name)
            self._server = self._make(lambda *_: account)
        return self._server.respond(token)
