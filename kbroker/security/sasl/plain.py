"""PLAIN (RFC 4616): the password itself, which is for connections with TLS."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping

from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError

PLAIN = "PLAIN"

_USER_OPTION = "user_"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords by user of a server's ``PlainLoginModule``: its options ``user_<name>="<password>"``."""
    return {name[len(_USER_OPTION) :]: value for name, value in options.items() if name.startswith(_USER_OPTION)}


class PasswordTable:
    """Passwords by user. How long a check takes tells neither whether the user exists nor how alike passwords are."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {user: self._digest(password) for user, password in passwords.items()}
        self._nobody = secrets.token_bytes(32)

    def __contains__(self, user: str) -> bool:
        return user in self._digests

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")

    def check(self, user: str, password: str) -> bool:
        """Whether this is the user's password."""
        expected = self._digests.get(user, self._nobody)
        return hmac.compare_digest(self._digest(password), expected)


INVALID_LOGIN = "Authentication failed: Invalid username or password"


def parse_plain(token: bytes) -> tuple[str, str, str]:
    """Authorization id, user and password of a client's message; ``SaslAuthenticationError`` if it has not all."""
    parts = token.decode("utf-8", "replace").split("\0")
    if len(parts) != 3:
        raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, user, password = parts
    if not user:
        raise SaslAuthenticationError("Authentication failed: username not specified")
    if not password:
        raise SaslAuthenticationError("Authentication failed: password not specified")
    return authorization_id, user, password


def check_authorization_id(authorization_id: str, user: str) -> None:
    """``SaslAuthenticationError`` if a client that has given its password wants to be somebody else."""
    if authorization_id and authorization_id != user:
        raise SaslAuthenticationError(
            "Authentication failed: Client requested an authorization id that is different from username"
        )


class PlainServer:
    """The server's side of one authentication (Kafka's ``PlainSaslServer``, errors included)."""

    mechanism = PLAIN
    expires_at_ms: int | None = None

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        """``check`` says whether a user has a password."""
        self._check = check
        self.is_done = False
        self._user = ""

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        return KafkaPrincipal(USER_TYPE, self._user)

    def respond(self, token: bytes) -> bytes:
        """Judge ``[authorization id] NUL user NUL password``; an empty answer, or ``SaslError``."""
        if self.is_done:
            raise SaslError("the authentication is complete")
        authorization_id, user, password = parse_plain(token)
        if not self._check(user, password):
            raise SaslAuthenticationError(INVALID_LOGIN)
        check_authorization_id(authorization_id, user)
        self._user = user
        self.is_done = True
        return b""


class PlainClient:
    """The client's side of one authentication."""

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.is_done = False

    def first(self) -> bytes:
        """The only message."""
        self.is_done = True
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        """A server has nothing to ask; ``SaslError`` if it does."""
        if challenge:
            raise SaslError("the server answers PLAIN with a challenge")
        return b""
