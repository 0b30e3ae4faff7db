"""The secrets of delegation tokens (KIP-48): a token's secret is the HMAC of its id, under a key that all nodes have.

Nothing secret of a token is stored: the metadata has its id, its owner and its times. The rules are those of Kafka's
``DelegationTokenManager``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping

from kbroker.config import BrokerConfig, Password
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.scram import ScramCredential, ScramMechanism
from kbroker.wire.records.metadata import DelegationTokenRecord

Tokens = Mapping[str, DelegationTokenRecord]
"""Tokens by their ids: a mapping of an image, which is another object when anything in it has changed."""


class DelegationTokens:
    """The key and the lifetimes of a node's delegation tokens (KIP-48). It shows no secret in any text."""

    def __init__(self, key: str, *, max_lifetime_ms: int, expiry_time_ms: int) -> None:
        """``max_lifetime_ms`` no token outlives; ``expiry_time_ms`` is between two renewals at most."""
        self.max_lifetime_ms = max_lifetime_ms
        self.expiry_time_ms = expiry_time_ms
        self._key = key.encode()
        self._ids: dict[bytes, str] = {}
        self._digests: dict[str, bytes] = {}
        self._indexed: Tokens | None = None
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    @classmethod
    def of_config(cls, config: BrokerConfig) -> DelegationTokens | None:
        """The settings of a node's properties; None if it has no key, and so no tokens."""
        values = config.security()
        key = values["delegation.token.secret.key"]
        if not isinstance(key, Password) or not key.value:
            return None
        return cls(
            key.value,
            max_lifetime_ms=values["delegation.token.max.lifetime.ms"],
            expiry_time_ms=values["delegation.token.expiry.time.ms"],
        )

    def hmac(self, token_id: str) -> bytes:
        """A token's secret: 64 bytes."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, secret: bytes, tokens: Tokens) -> DelegationTokenRecord | None:
        """The token whose secret this is; None if it is none's.

        It is looked up by its digest, so the time tells nothing of how much of a guess is right.
        """
        self._index(tokens)
        token_id = self._ids.get(_digest(secret))
        if token_id is None or not hmac.compare_digest(secret, self.hmac(token_id)):
            return None
        return tokens[token_id]

    def _index(self, tokens: Tokens) -> None:
        if tokens is self._indexed:
            return
        for token_id in self._digests.keys() - tokens.keys():
            del self._ids[self._digests.pop(token_id)]
        for token_id in tokens.keys() - self._digests.keys():
            digest = self._digests[token_id] = _digest(self.hmac(token_id))
            self._ids[digest] = token_id
        self._indexed = tokens

    def credential(self, mechanism: ScramMechanism, token_id: str, tokens: Tokens) -> ScramCredential:
        """The credential of a token that is in ``tokens``: its secret in base64 is the password.

        Made at the first login, which takes milliseconds, and kept for as long as there is the token.
        """
        found = self._credentials.get((token_id, mechanism))
        if found is None:
            for key in [key for key in self._credentials if key[0] not in tokens]:
                del self._credentials[key]
            password = base64.b64encode(self.hmac(token_id)).decode()
            found = self._credentials[token_id, mechanism] = ScramCredential.from_password(mechanism, password)
        return found


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def principal_of(text: str) -> KafkaPrincipal:
    """A principal as records of tokens have it. Type and name may be empty there (``SecurityUtils``)."""
    kind, _, name = text.partition(":")
    return KafkaPrincipal(kind, name)


def has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether a token is good for nothing any more."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def may_renew(token: DelegationTokenRecord, principal: KafkaPrincipal) -> bool:
    """Whether a principal may renew a token and let it expire: its owner and its renewers may."""
    return str(principal) == token.owner or str(principal) in token.renewers


def concerns(token: DelegationTokenRecord, principals: Collection[str]) -> bool:
    """Whether one of the principals (a set of their texts) owns a token, may renew it, or has asked for it."""
    return (
        token.owner in principals
        or token.requester in principals
        or any(renewer in principals for renewer in token.renewers)
    )
