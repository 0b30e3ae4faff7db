"""Keys of a token provider (JWKS, RFC 7517), and signatures by them.

Only signatures with a public key count: a provider's key set is public, so a key of it must never serve for a code that
both sides know (HS256), and a token without a signature (alg none) proves nothing. The package ``joserfc`` checks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from kbroker.config.config_key import InvalidConfig

if find_spec("joserfc") is None:
    raise InvalidConfig("OAUTHBEARER with signed tokens needs the package joserfc: pip install 'kbroker[oauth]'")

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from kbroker.security.sasl.oauthbearer.compact import MAX_HEADER, MAX_TOKEN, decode_json, split_token
from kbroker.security.sasl.oauthbearer.token import TokenRefused

CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *CURVES)
"""Those by which a token may be signed."""

MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_KEYS: Final = 100
_MOST_TRIED: Final = 4
"""Keys that a token is checked by if it does not name one."""


def _registry(algorithm: str) -> jws.JWSRegistry:
    """The library's rules for tokens of an algorithm (RFC 7515): a header may have names that nobody here knows.

    Lengths are judged before, so that a long header or the signature of a long key is not taken for a wrong one.
    """
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = MAX_HEADER
    registry.max_payload_length = registry.max_signature_length = MAX_TOKEN
    return registry


_REGISTRIES: Final = {algorithm: _registry(algorithm) for algorithm in ALGORITHMS}


class UnknownKey(TokenRefused):
    """A token that no key fits which the provider is known to have: it may have newer ones."""


class Key(NamedTuple):
    """A public key of a provider of tokens (a JWK)."""

    kid: str | None
    algorithm: str | None
    """The only algorithm that it is for, None if it does not say."""
    public: RSAKey | ECKey

    def fits(self, algorithm: str) -> bool:
        """Whether a token may be signed with it by this algorithm."""
        if self.algorithm is not None and self.algorithm != algorithm:
            return False
        if isinstance(self.public, RSAKey):
            return algorithm not in CURVES
        return self.public.curve_name == CURVES.get(algorithm)


class KeySet:
    """The keys that a provider has now."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def of_token(self, kid: str | None, algorithm: str) -> list[Key]:
        """The keys by which a token may be signed that names this key and algorithm."""
        fitting = [key for key in self._keys if key.fits(algorithm) and kid in (None, key.kid)]
        return fitting[:_MOST_TRIED]

    def verified(self, token: str) -> dict[str, Any]:
        """The claims of a token with a right signature, which are not judged yet.

        :class:`UnknownKey` if no key fits, :class:`TokenRefused` for anything else.
        """
        parts = split_token(token)
        header = decode_json(parts.header, "header")
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused(f"tokens are to be signed by one of {', '.join(ALGORITHMS)}")
        if "crit" in header:
            raise TokenRefused("the token's header has extensions (crit)")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefused("the token's kid is no string")
        keys = self.of_token(kid, algorithm)
        if not keys:
            raise UnknownKey("the provider has no key that fits the token's kid and algorithm")
        if not any(_is_signed(token, key, algorithm) for key in keys):
            raise TokenRefused("the token's signature is wrong")
        return decode_json(parts.payload, "payload")


def _is_signed(token: str, key: Key, algorithm: str) -> bool:
    try:
        jws.deserialize_compact(token, key.public, registry=_REGISTRIES[algorithm])
    except (JoseError, ValueError, TypeError, KeyError):
        return False
    return True


def parse_key_set(text: bytes) -> KeySet:
    """The keys of a JWKS that can check signatures; ``ValueError`` in a few words if there are none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is no JSON object with keys")
    if len(entries) > MAX_KEYS:
        raise ValueError(f"it has {len(entries)} keys, and at most {MAX_KEYS} are read")
    keys = list(_keys(entries))
    if not keys:
        raise ValueError("it has no key that can check a signature of RSA or of an elliptic curve")
    return KeySet(keys)


def _keys(entries: list[object]) -> Iterator[Key]:
    for entry in entries:
        if not isinstance(entry, dict) or not _is_for_signatures(entry):
            continue
        kid, algorithm = entry.get("kid"), entry.get("alg")
        if not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
            continue
        public = _public_key(entry)
        if public is not None:
            yield Key(kid, algorithm, public)


def _is_for_signatures(entry: dict[str, Any]) -> bool:
    operations = entry.get("key_ops")
    may_verify = operations is None or (isinstance(operations, list) and "verify" in operations)
    return entry.get("use", "sig") == "sig" and may_verify


def _public_key(entry: dict[str, Any]) -> RSAKey | ECKey | None:
    """The key, of its public part alone; None for one of another kind, or a damaged or weak one."""
    try:
        if entry.get("kty") == "RSA":
            if len(entry["n"]) * 6 < MIN_RSA_BITS:
                return None  # the library would warn of it
            rsa = RSAKey.import_key({name: entry[name] for name in ("kty", "n", "e")})
            return rsa if MIN_RSA_BITS <= rsa.public_key.key_size <= MAX_RSA_BITS else None
        if entry.get("kty") == "EC" and entry.get("crv") in CURVES.values():
            return ECKey.import_key({name: entry[name] for name in ("kty", "crv", "x", "y")})
    except (JoseError, ValueError, TypeError, KeyError):
        pass
    return None
