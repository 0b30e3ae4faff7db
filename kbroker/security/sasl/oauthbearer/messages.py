"""OAUTHBEARER's messages (RFC 7628): the client's first one with token and extensions, and the server's error.

Rules and texts are those of Kafka's ``OAuthBearerClientInitialResponse`` and ``OAuthBearerSaslServer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kbroker.security.sasl.errors import SaslError
from kbroker.security.sasl.oauthbearer.token import TokenRefused

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
