"""The compact form of tokens (RFC 7515, section 3.1), and their JSON, read without trust."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NamedTuple

from kbroker.security.sasl.oauthbearer.token import TokenRefused

MAX_TOKEN = 64 * 1024
"""Characters of a token: those of providers have a few thousand."""

MAX_HEADER = 4 * 1024
"""Characters of its header, which is read before anything is known of the token."""

_BASE64 = re.compile(r"[A-Za-z0-9_-]*")


class Compact(NamedTuple):
    """The three parts of a token, as they stand in it."""

    header: str
    payload: str
    signature: str


def split_token(token: str) -> Compact:
    """The parts of a token; :class:`TokenRefused` if it has not three of them, or too many characters."""
    if len(token) > MAX_TOKEN:
        raise TokenRefused(f"the token has {len(token)} characters, and at most {MAX_TOKEN} are read")
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise TokenRefused("the token has not the three parts of a JWT")
    if len(parts[0]) > MAX_HEADER:
        raise TokenRefused("the token's header is too long")
    return Compact(*parts)


def decode_json(part: str, name: str) -> dict[str, Any]:
    """The JSON object of one part, which no name is in twice; :class:`TokenRefused` for anything else."""
    if not _BASE64.fullmatch(part):
        raise TokenRefused(f"the token's {name} is not in base64url")
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError, binascii.Error):
        raise TokenRefused(f"the token's {name} is no JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused(f"the token's {name} is no JSON object")
    return value


def encode_json(value: dict[str, Any]) -> str:
    """A part of a token."""
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name is there twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
