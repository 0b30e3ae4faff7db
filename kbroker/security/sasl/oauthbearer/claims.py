"""The claims of a signed token: who made it, for whom, and when it holds (RFC 7519; Kafka's ``BrokerJwtValidator``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused

_LATEST = 1 << 42
"""Seconds since 1970 beyond any date: greater numbers are refused before anything is computed with them."""

Claims = Mapping[str, Any]


class ClaimRules(NamedTuple):
    """The rules of one listener."""

    audiences: frozenset[str]
    """Of which a token must name one; empty if any will do."""
    issuer: str | None
    """The only one whose tokens are taken; None if any will do."""
    skew_seconds: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


def judge_claims(claims: Claims, rules: ClaimRules, now_ms: int) -> BearerToken:
    """The token that has these claims; :class:`TokenRefused` if a rule is broken, or a claim is of another type."""
    _check_issuer(claims, rules)
    _check_audience(claims, rules)
    expires = _check_times(claims, rules.skew_seconds, now_ms / 1000)
    for name in ("sub", "jti"):
        if not isinstance(claims.get(name, ""), str):
            raise TokenRefused(f"claim {name} is no string")
    principal = _text(claims, rules.sub_claim)
    if principal is None:
        raise TokenRefused(f"there is no claim {rules.sub_claim}")
    return BearerToken(principal, int(expires * 1000), _scope(claims, rules.scope_claim), claims)


def _check_issuer(claims: Claims, rules: ClaimRules) -> None:
    issuer = claims.get("iss")
    if issuer is not None and not isinstance(issuer, str):
        raise TokenRefused("claim iss is no string")
    if rules.issuer is not None and issuer != rules.issuer:
        raise TokenRefused("claim iss is missing" if issuer is None else "claim iss names another issuer")


def _check_audience(claims: Claims, rules: ClaimRules) -> None:
    if not rules.audiences:
        return
    audience = claims.get("aud")
    if audience is None:
        raise TokenRefused("claim aud is missing")
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise TokenRefused("claim aud is neither a string nor a list of strings")
    if rules.audiences.isdisjoint(named):
        raise TokenRefused("claim aud names no audience of this listener")


def _check_times(claims: Claims, skew: int, now: float) -> float:
    """The end of the token, in seconds since 1970."""
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise TokenRefused(f"claim {'exp' if expires is None else 'iat'} is missing")
    if now - skew >= expires:
        raise TokenRefused("the token has expired (claim exp)")
    if begins is not None and now + skew < begins:
        raise TokenRefused("the token does not hold yet (claim nbf)")
    if now + skew < issued:
        raise TokenRefused("the token was made in the future (claim iat)")
    if expires < issued or (begins is not None and expires < begins):
        raise TokenRefused("the token ends before it begins (claims exp, iat, nbf)")
    return expires


def _seconds(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # A bool is an int in Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"claim {name} is no number")
    if not 0 <= value < _LATEST or not math.isfinite(value):
        raise TokenRefused(f"claim {name} is no time")
    return value


def _text(claims: Claims, name: str) -> str | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"claim {name} is no string, or an empty one")
    return value.strip()


def _scope(claims: Claims, name: str) -> frozenset[str]:
    """The scope as Kafka takes it: a string is one, a list has several, and anything else is none."""
    value = claims.get(name)
    if not isinstance(value, str | list):
        return frozenset()
    scopes = [value] if isinstance(value, str) else value
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise TokenRefused(f"claim {name} has a part that is empty or no string")
    stripped = [scope.strip() for scope in scopes]
    if len(set(stripped)) < len(stripped):
        raise TokenRefused(f"claim {name} has a part twice")
    return frozenset(stripped)
