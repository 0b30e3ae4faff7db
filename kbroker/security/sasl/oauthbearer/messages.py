"""OAUTHBEARER's messages (RFC 7628) and its two sides: a token with extensions from the client, errors from the server.

Rules and texts are those of Kafka's ``OAuthBearerClientInitialResponse`` and ``OAuthBearerSaslServer``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from kbroker.security.principal import USER_TYPE, KafkaPrincipal, can_be_sent
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from kbroker.security.sasl.oauthbearer.token import OAUTHBEARER, BearerToken, TokenRefused, Validator
from kbroker.security.shown import shown

SEPARATOR = "\x01"
AFTER_ERROR = b"\x01"
"""The client's message after the server's error."""

_AUTH = "auth"
_HEADER = re.compile(r"n,(?:a=((?:[\x02-+\--<>-\x7f]|=2C|=3D)+))?,")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_BEARER = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_INVALID = "Invalid OAUTHBEARER client first message"


class InitialResponse(NamedTuple):
    """The client's first message."""

    token: str
    authorization_id: str
    """The name that the client wants to act for, as it stands in the message; empty if it does not say."""
    extensions: Mapping[str, str]
    """SASL extensions (KIP-342) by name."""

    def __repr__(self) -> str:
        return f"<OAUTHBEARER message with extensions {', '.join(self.extensions) or 'none'}>"


def parse_initial_response(message: bytes) -> InitialResponse:
    """The parts of a client's first message; ``SaslError`` if it is not one."""
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise SaslError(_INVALID) from None
    header, found, rest = text.partition(SEPARATOR)
    matched = _HEADER.fullmatch(header)
    # Each pair ends with a separator, and one more ends the message.
    if not found or matched is None or not rest.endswith(SEPARATOR):
        raise SaslError(_INVALID)
    pairs = _pairs(rest[:-1])
    auth = pairs.pop(_AUTH, None)
    if auth is None:
        raise SaslError(f"{_INVALID}: 'auth' not specified")
    bearer = _BEARER.fullmatch(auth)
    if bearer is None:
        raise SaslError(f"{_INVALID}: invalid 'auth' format")
    if bearer[1].lower() != "bearer":
        raise SaslError("Invalid scheme in OAUTHBEARER client first message")
    return InitialResponse(bearer[2], matched[1] or "", pairs)


def _pairs(text: str) -> dict[str, str]:
    if not text:
        return {}
    if not text.endswith(SEPARATOR):
        raise SaslError(_INVALID)
    pairs = {}
    for pair in text[:-1].split(SEPARATOR):
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise SaslError(_INVALID)
        pairs[key] = value
    return pairs


def check_extensions(extensions: Mapping[str, str]) -> None:
    """``ValueError`` if a client's extensions cannot be sent. It names those that are wrong, and no values."""
    for name, value in extensions.items():
        if name == _AUTH or not _KEY.fullmatch(name):
            raise ValueError(f"Extension name {name} is invalid")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"The value of extension {name} is invalid")


def initial_response(token: str, extensions: Mapping[str, str]) -> bytes:
    """A client's first message, of a token and of extensions that were checked."""
    pairs = "".join(f"{name}={value}{SEPARATOR}" for name, value in extensions.items())
    return f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{pairs}{SEPARATOR}".encode()


def error_message(refused: TokenRefused) -> str:
    """The JSON that tells a client why its token does not do."""
    parts = [f'{{"status":"{refused.status}"']
    if refused.scope is not None:
        parts.append(f'"scope":"{refused.scope}"')
    if refused.configuration is not None:
        parts.append(f'"openid-configuration":"{refused.configuration}"')
    return ", ".join(parts) + "}"


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


class OAuthBearerServer:
    """The server's side of one authentication."""

    mechanism = OAUTHBEARER

    def __init__(self, validate: Validator) -> None:
        self._validate = validate
        self._refusal: SaslAuthenticationError | None = None
        self.token: BearerToken | None = None
        """The client's token once it is let in."""
        self.extensions: Mapping[str, str] = {}
        """The client's SASL extensions, for those who make more of them. The client alone vouches for them."""

    @property
    def is_done(self) -> bool:
        """Whether the client has been let in."""
        return self.token is not None

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        assert self.token is not None
        return KafkaPrincipal(USER_TYPE, self.token.principal_name)

    @property
    def expires_at_ms(self) -> int | None:
        """When the token ends."""
        assert self.token is not None
        return self.token.expires_at_ms

    def respond(self, token: bytes) -> Awaitable[bytes]:
        """Judge the client's message. An answer that is not empty is an error, which the client confirms."""
        return self._respond(token)

    async def _respond(self, message: bytes) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        if self.token is not None:
            raise SaslError("the authentication is complete")
        parsed = parse_initial_response(message)
        try:
            judged = self._validate(parsed.token)
            token = judged if isinstance(judged, BearerToken) else await judged
            if not can_be_sent(token.principal_name):
                raise TokenRefused("the principal's name is too long, or no text")
        except TokenRefused as refused:
            text = error_message(refused)
            self._refusal = SaslAuthenticationError(text, detail=shown(str(refused), 500))
            return text.encode()
        self._check_authorization(parsed, token)
        self.token, self.extensions = token, parsed.extensions
        return b""

    @staticmethod
    def _check_authorization(parsed: InitialResponse, token: BearerToken) -> None:
        wanted = parsed.authorization_id
        if wanted and wanted != token.principal_name:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({wanted}) that is different from"
                f" the token's principal name ({token.principal_name})"
            )
