"""Assertions: a client proves itself to its token provider by a signed statement, and keeps no secret there.

An assertion buys a token (RFC 7523: a grant of its own, KIP-1139), or stands for the client's secret in a request by
client credentials (KIP-1258). It is read from a file, or made and signed for each request. Rules are those of Kafka's
``AssertionSupplierFactory`` and the formatters of its requests.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from kbroker.security.sasl.mechanism import Settings
from kbroker.security.sasl.oauthbearer.compact import encode_json, split_token
from kbroker.security.sasl.oauthbearer.http import ProviderError, Url, read_file
from kbroker.security.sasl.oauthbearer.token import TokenRefused

_PREFIX: Final = "sasl.oauthbearer.assertion."
_FILE: Final = f"{_PREFIX}file"
_KEY: Final = f"{_PREFIX}private.key.file"
ISSUER: Final = f"{_PREFIX}claim.iss"

BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

HEADERS: Final[Mapping[str, str]] = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
"""Those of each request for a token."""


class Bearer:
    """A request for a token that is granted for an assertion (RFC 7523, section 2.1)."""

    def __init__(self, assertion: Callable[[], str], scope: str | None = None) -> None:
        """``assertion`` makes one; ``ProviderError`` if it cannot."""
        self._assertion = assertion
        self._scope = scope

    def headers(self) -> Mapping[str, str]:
        """Those of the request."""
        return HEADERS

    def form(self) -> bytes:
        """The body of the request, with a new assertion."""
        return _form(grant_type=BEARER_GRANT, assertion=self._assertion(), scope=self._scope)


class ByAssertion:
    """A request by client credentials in which an assertion stands for the secret (RFC 7523, section 2.2)."""

    def __init__(self, assertion: Callable[[], str], client_id: str | None = None, scope: str | None = None) -> None:
        """``assertion`` as in :class:`Bearer`. A provider that reads the client's id in it needs no ``client_id``."""
        self._assertion = assertion
        self._client_id = client_id
        self._scope = scope

    def headers(self) -> Mapping[str, str]:
        """Those of the request."""
        return HEADERS

    def form(self) -> bytes:
        """The body of the request, with a new assertion."""
        return _form(
            client_assertion_type=ASSERTION_TYPE,
            client_assertion=self._assertion(),
            grant_type="client_credentials",
            client_id=self._client_id,
            scope=self._scope,
        )


def _form(**fields: str | None) -> bytes:
    return urlencode({name: value for name, value in fields.items() if value}).encode()


def has_assertion(settings: Settings) -> bool:
    """Whether a client with client credentials has an assertion instead of a secret."""
    return bool(_text(settings, _FILE) or _text(settings, ISSUER))


def assertions(settings: Settings, now: Callable[[], float]) -> Callable[[], str]:
    """A maker of assertions, by a client's properties; ``now`` gives seconds since 1970.

    ``ValueError`` if they do not say where assertions come from. The maker raises ``ProviderError``, which tells no
    secret, if a file cannot be used.
    """
    if (file := _text(settings, _FILE)) is not None:
        return partial(_from_file, Path(file))
    if (key := _text(settings, _KEY)) is None:
        raise ValueError(f"{_FILE} and {_KEY} are not set, so there is no assertion")
    passphrase = settings[f"{_PREFIX}private.key.passphrase"]
    text = getattr(passphrase, "value", passphrase)
    signer = Signer(Path(key), settings[f"{_PREFIX}algorithm"].upper(), None if text is None else text.encode())
    static = {name: _text(settings, f"{_PREFIX}claim.{name}") for name in ("aud", "iss", "sub")}
    times = Times(
        int(settings[f"{_PREFIX}claim.exp.seconds"]),
        int(settings[f"{_PREFIX}claim.nbf.seconds"]),
        bool(settings[f"{_PREFIX}claim.jti.include"]),
    )
    template = _text(settings, f"{_PREFIX}template.file")

    def make() -> str:
        header, claims = ({}, {}) if template is None else read_template(Path(template))
        given = {name: value for name, value in static.items() if value is not None}
        return signer.signed(header, {**given, **claims, **times.claims(now())})

    return make


def _text(settings: Settings, name: str) -> str | None:
    value: str | None = settings[name]
    return value.strip() or None if value else None


def _read(path: Path) -> bytes:
    try:
        return read_file(Url("file", "", 0, str(path)))
    except ProviderError as error:
        raise ProviderError(str(error), is_final=True) from None


def _from_file(path: Path) -> str:
    try:
        assertion = _read(path).decode("ascii").strip()
        split_token(assertion)
    except (UnicodeDecodeError, TokenRefused):
        raise ProviderError(f"{path} holds no assertion", is_final=True) from None
    return assertion


class Times(NamedTuple):
    """The claims of an assertion that are new in each: seconds until its end and since its beginning, and an id."""

    until_end: int
    since_beginning: int
    has_id: bool

    def claims(self, now: float) -> dict[str, Any]:
        """Those of an assertion that is made at a time, in seconds since 1970."""
        second = int(now)
        claims: dict[str, Any] = {"iat": second, "exp": second + self.until_end, "nbf": second - self.since_beginning}
        if self.has_id:
            claims["jti"] = str(uuid.uuid4())
        return claims


def read_template(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a file in JSON, ``{"header": {...}, "payload": {...}}``; ``ProviderError``."""
    try:
        value = json.loads(_read(path))
        parts = [value.get(name) or {} for name in ("header", "payload")]
    except (ValueError, RecursionError, AttributeError):
        raise ProviderError(f"{path} is no JSON object", is_final=True) from None
    if not all(isinstance(part, dict) for part in parts):
        raise ProviderError(f"{path}: header and payload must be JSON objects", is_final=True)
    return parts[0], parts[1]


class Signer:
    """A private key in a file in PEM (PKCS 8), read for each assertion, as it may be replaced."""

    def __init__(self, path: Path, algorithm: str, passphrase: bytes | None = None) -> None:
        """``algorithm`` is ES256 or RS256. ``ValueError`` without the package that signs."""
        from importlib.util import find_spec

        if find_spec("cryptography") is None:
            raise ValueError("assertions need the package cryptography: pip install 'kbroker[oauth]'")
        self._path = path
        self._algorithm = algorithm
        self._passphrase = passphrase

    def signed(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
        """A signed JWT; ``ProviderError`` if the key cannot be used. ``alg`` and ``typ`` are the signer's."""
        content = f"{encode_json({**header, 'alg': self._algorithm, 'typ': 'JWT'})}.{encode_json(dict(claims))}"
        signature = base64.urlsafe_b64encode(self._signature(content.encode())).rstrip(b"=").decode()
        return f"{content}.{signature}"

    def _signature(self, content: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(_read(self._path), self._passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            told = f"{self._path} holds no private key that can be read with the passphrase that is set"
            raise ProviderError(told, is_final=True) from None
        if self._algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(content, padding.PKCS1v15(), SHA256())
        if self._algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.key_size == 256:
            pair = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
            return b"".join(number.to_bytes(32, "big") for number in pair)
        raise ProviderError(f"{self._path} holds no key for {self._algorithm}", is_final=True)
