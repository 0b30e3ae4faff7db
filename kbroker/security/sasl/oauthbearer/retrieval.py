"""A client's tokens: from a provider, from a file, or of its own making; kept, and renewed before they end (KIP-768).

Everything here blocks, and may be called by several threads. Rules are those of Kafka's ``HttpJwtRetriever``,
``ClientCredentialsJwtRetriever``, ``ClientJwtValidator`` and ``ExpiringCredentialRefreshingLogin``.
"""

from __future__ import annotations

import base64
import json
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import quote_plus

from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer.compact import decode_json, split_token
from kbroker.security.sasl.oauthbearer.http import ProviderError, Url, read_file
from kbroker.security.sasl.oauthbearer.token import TokenRefused

Ask = Callable[[Mapping[str, str], bytes], bytes]
"""Posts a form, with headers, to the token endpoint; ``ProviderError``."""


class TokenRequest(Protocol):
    """The request of a client for a token: who it is, and by what it proves that."""

    def headers(self) -> Mapping[str, str]:
        """Those of the request."""

    def form(self) -> bytes:
        """The body of the request; ``ProviderError`` if it cannot be made."""


class Credentials(NamedTuple):
    """A client's identity at the provider (grant ``client_credentials``)."""

    client_id: str
    client_secret: str
    scope: str | None = None
    url_encode: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 has it and few providers do."""

    def __repr__(self) -> str:
        return f"<credentials of {self.client_id}>"

    def headers(self) -> dict[str, str]:
        """Those of the request for a token."""
        encode = quote_plus if self.url_encode else str
        pair = f"{encode(self.client_id)}:{encode(self.client_secret)}"
        return {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def form(self) -> bytes:
        """The body of the request."""
        scope = f"&scope={quote_plus(self.scope)}" if self.scope else ""
        return f"grant_type=client_credentials{scope}".encode()


class Backoff(NamedTuple):
    """Seconds between attempts to reach a provider: the first wait, which doubles, and how long to try in all."""

    first: float = 0.1
    longest: float = 10.0


def from_endpoint(ask: Ask, request: TokenRequest, backoff: Backoff) -> Callable[[], str]:
    """The function that gets a new token of a provider; ``ProviderError``."""

    def get() -> str:
        wait, deadline = backoff.first, time.monotonic() + backoff.longest
        while True:
            try:
                return token_of_answer(ask(request.headers(), request.form()))
            except ProviderError as error:
                if error.is_final or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, backoff.longest)

    return get


def token_of_answer(body: bytes) -> str:
    """The token in a provider's answer: its ``access_token``, or else its ``id_token``; ``ProviderError``."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("the token endpoint's answer is no JSON", is_final=True) from None
    for name in ("access_token", "id_token"):
        token = value.get(name) if isinstance(value, dict) else None
        if isinstance(token, str) and token.strip():
            return token.strip()
    raise ProviderError("the token endpoint's answer has no token", is_final=True)


def from_file(url: Url) -> Callable[[], str]:
    """The function that reads the token of a file; ``ProviderError``."""

    def get() -> str:
        try:
            return read_file(url).decode("ascii").strip()
        except UnicodeDecodeError:
            raise ProviderError(f"{url.target} holds no token") from None

    return get


class Refresh(NamedTuple):
    """When a token is renewed: Kafka's ``sasl.login.refresh.*``."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300

    def renew_at(self, began: float, ends: float) -> float:
        """When to renew a token that holds between two times, all in seconds since 1970."""
        share = self.window_factor + self.window_jitter * random.random()
        at = began + share * (ends - began)
        if began + self.min_period_seconds + self.buffer_seconds <= ends:
            at = min(max(at, began + self.min_period_seconds), ends - self.buffer_seconds)
        return at


_FAILURE_SECONDS = 1.0
"""The time that a provider that has failed is not asked again."""


class Tokens:
    """A client's token at any time: the same one until it is to be renewed."""

    def __init__(
        self, get: Callable[[], str], sub_claim: str, refresh: Refresh, now: Callable[[], float] = time.time
    ) -> None:
        """``sub_claim`` is the name of the claim that holds the subject; ``now`` is in seconds since 1970."""
        self._get = get
        self._sub_claim = sub_claim
        self._refresh = refresh
        self._now = now
        self._lock = threading.Lock()
        self._token: str | None = None
        self._renew_at = 0.0
        self._ends = 0.0
        self._failure = ""
        self._failed_at = -math.inf

    def token(self) -> str:
        """A token that holds now. ``SaslError`` in one line, without secrets, if there is none to be had."""
        with self._lock:
            now = self._now()
            if self._token is None or now >= min(self._renew_at, self._ends):
                # Those who waited for a provider that did not answer do not wait for it again, one after the other.
                if not self._failed_at <= now < self._failed_at + _FAILURE_SECONDS:
                    self._renew(now)
                if self._token is None or now >= self._ends:
                    raise SaslError(f"there is no token: {self._failure}")
            return self._token

    def _renew(self, now: float) -> None:
        try:
            token = self._get()
            began, ends = times_of(token, self._sub_claim, now)
            if ends <= now:
                raise TokenRefused("the token has expired")
        except (ProviderError, TokenRefused) as error:
            self._failure, self._failed_at = str(error), self._now()
            # The old one may still hold. A new one is not asked for at each connection meanwhile.
            self._renew_at = now + max(1, self._refresh.min_period_seconds)
        else:
            self._token, self._ends, self._renew_at = token, ends, self._refresh.renew_at(began, ends)


def times_of(token: str, sub_claim: str, now: float) -> tuple[float, float]:
    """Since when, or now, and until when a token holds, in seconds since 1970. Its signature is the brokers' business.

    ``TokenRefused`` if it is no JWT with an end and a subject.
    """
    parts = split_token(token)
    decode_json(parts.header, "header")
    claims = decode_json(parts.payload, "payload")
    ends, issued = claims.get("exp"), claims.get("iat")
    if isinstance(ends, bool) or not isinstance(ends, int | float) or not 0 <= ends < 1 << 42:
        raise TokenRefused("the token has no end (claim exp)")
    subject = claims.get(sub_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"the token has no claim {sub_claim}")
    if isinstance(issued, int | float) and not isinstance(issued, bool) and 0 <= issued <= ends:
        return issued, ends
    return now, ends
