"""SCRAM by a rule of one's own: it is given a user's name, and answers with the user's credential."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.errors import FatalError
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.rules.decision import Decision
from kbroker.rules.records import ScramLogin
from kbroker.security.principal import USER_TYPE, KafkaPrincipal, can_be_sent
from kbroker.security.sasl.scram import (
    CLIENT_MAX_ITERATIONS,
    MIN_ITERATIONS,
    USUAL_FORM,
    CredentialForm,
    ScramAccount,
    ScramCredential,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    claimed_user,
)


class ScramRule:
    """The rule of one listener and mechanism."""

    def __init__(self, rule: Any, name: str, listener: str, mechanism: ScramMechanism) -> None:
        """``name`` is the rule's in the node's file."""
        self._calls = AwaitedCalls(rule, "credential", name, "the client is not let in")
        self._listener = listener
        self.mechanism = mechanism
        self.form = _declared_form(rule, name)
        """The form of the credentials of users whom nobody knows. The rule declares it: a form that followed the
        credentials which are looked up would tell whoever asks for names which of them exist."""

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
        form = CredentialForm.of(answer.salt, answer.iterations)._replace(salt_is_text=False)
        if form != self.form:
            self._calls.complaints.unlike(_described(form), _described(self.form))
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


def _declared_form(rule: Any, name: str) -> CredentialForm:
    """The form that a rule's ``iterations`` and ``salt_bytes`` are. ``FatalError`` for one that no client takes."""
    iterations = getattr(rule, "iterations", USUAL_FORM.iterations)
    salt_bytes = getattr(rule, "salt_bytes", USUAL_FORM.salt_bytes)
    if type(iterations) is not int or not MIN_ITERATIONS <= iterations <= CLIENT_MAX_ITERATIONS:
        raise FatalError(
            f"{name}: iterations={iterations!r}: a whole number from {MIN_ITERATIONS} to {CLIENT_MAX_ITERATIONS}"
        )
    if type(salt_bytes) is not int or not 1 <= salt_bytes <= _MAX_SALT_BYTES:
        raise FatalError(f"{name}: salt_bytes={salt_bytes!r}: a whole number from 1 to {_MAX_SALT_BYTES}")
    return CredentialForm(iterations, salt_bytes, False)


def _described(form: CredentialForm) -> str:
    return f"{form.iterations} iterations and a salt of {form.salt_bytes} bytes"


_MAX_SALT_BYTES = 1024


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
