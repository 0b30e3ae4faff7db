"""Tokens without a signature, which anybody can make: for trying things out.

Rules, options and their defaults are those of Kafka's ``OAuthBearerUnsecuredValidatorCallbackHandler`` and
``OAuthBearerUnsecuredLoginCallbackHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kbroker.security.sasl.oauthbearer.compact import decode_json, encode_json, split_token
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused, Validator

_VALIDATOR = "unsecuredValidator"
_LOGIN = "unsecuredLogin"
EXTENSION = f"{_LOGIN}Extension_"
_RESERVED = ("iat", "exp")


class _Rules(NamedTuple):
    principal_claim: str
    scope_claim: str
    required_scope: frozenset[str]
    skew_ms: int


def unsecured_validator(options: Mapping[str, str], now_ms: Callable[[], int]) -> Validator:
    """A validator by the options of a server's line of JAAS; ``ValueError`` if one of them makes no sense."""

    def option(name: str, default: str) -> str:
        return options.get(f"{_VALIDATOR}{name}", "").strip() or default

    skew = option("AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise ValueError(f"{_VALIDATOR}AllowableClockSkewMs must be a number of milliseconds")
    rules = _Rules(
        option("PrincipalClaimName", "sub"),
        option("ScopeClaimName", "scope"),
        frozenset(option("RequiredScope", "").split()),
        int(skew),
    )
    return lambda token: _judge(token, rules, now_ms())


def _judge(token: str, rules: _Rules, now_ms: int) -> BearerToken:
    parts = split_token(token)
    if decode_json(parts.header, "header").get("alg") != "none" or parts.signature:
        raise TokenRefused("an unsecured token has the algorithm none and no signature")
    claims = decode_json(parts.payload, "payload")
    expires, issued = (_number(claims, name) for name in ("exp", "iat"))
    if expires is None:
        raise TokenRefused("claim exp is missing")
    name = claims.get(rules.principal_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenRefused(f"claim {rules.principal_claim} is missing, or no string")
    if issued is not None and 1000 * issued > now_ms + rules.skew_ms:
        raise TokenRefused("the token was made in the future (claim iat)")
    if now_ms - rules.skew_ms >= 1000 * expires:
        raise TokenRefused("the token has expired (claim exp)")
    if issued is not None and expires <= issued:
        raise TokenRefused("the token ends before it begins (claims exp, iat)")
    scope = _scope(claims, rules.scope_claim)
    if not rules.required_scope <= scope:
        needed = f"[{', '.join(sorted(rules.required_scope))}]"
        raise TokenRefused("the token lacks a part of the scope", "insufficient_scope", needed)
    return BearerToken(name, round(1000 * expires), scope, claims)


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 42:
        raise TokenRefused(f"claim {name} is no time")
    return value


def _scope(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    value = claims.get(name)
    parts = [value] if isinstance(value, str) else value
    if parts is None:
        return frozenset()
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise TokenRefused(f"claim {name} is neither a string nor a list of strings")
    return frozenset(part.strip() for part in parts if part.strip())


def has_unsecured_login(options: Mapping[str, str]) -> bool:
    """Whether a client's line of JAAS asks for a token of its own making."""
    return any(name.startswith(_LOGIN) and not name.startswith(EXTENSION) for name in options)


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """A token as a client's line of JAAS asks for it; ``ValueError``, which tells no value, if that makes no sense."""
    lifetime = options.get(f"{_LOGIN}LifetimeSeconds", "3600").strip()
    if not lifetime.isdecimal():
        raise ValueError(f"{_LOGIN}LifetimeSeconds must be a number of seconds")
    claims: dict[str, Any] = {"exp": now_ms / 1000 + int(lifetime), "iat": now_ms / 1000}
    for name, value in options.items():
        kind, found, claim = name.removeprefix(_LOGIN).partition("Claim_")
        if not name.startswith(_LOGIN) or not found or not claim:
            continue
        if claim in _RESERVED:
            raise ValueError(f"Cannot explicitly set the '{claim}' claim")
        claims[claim] = _claim(kind, name, value)
    principal = options.get(f"{_LOGIN}PrincipalClaimName", "").strip() or "sub"
    if not isinstance(claims.get(principal), str) or not claims[principal].strip():
        raise ValueError(f"OAuthBearerLoginModule needs the option {_LOGIN}StringClaim_{principal}")
    return f"{encode_json({'alg': 'none'})}.{encode_json(claims)}."


def _claim(kind: str, name: str, value: str) -> Any:
    if kind == "String":
        return value
    if kind == "List":
        return value[1:].split(value[0]) if len(value) > 1 else []
    if kind == "Number":
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{name} must be a number") from None
    raise ValueError(f"{name} is no option of OAuthBearerLoginModule")
