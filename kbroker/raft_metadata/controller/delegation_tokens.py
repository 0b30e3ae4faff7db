"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken: tokens in the metadata log.

The rules are those of Kafka's ``DelegationTokenControlManager``. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.metadata_version import DELEGATION_TOKENS
from kbroker.security.delegation_tokens import DelegationTokens, has_expired, may_renew
from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.types import random_uuid, uuid_to_str
from kbroker.wire.records.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord

MOST_EXPIRED_AT_ONCE = 1000
"""Tokens that are removed with one change."""

_LAST = (1 << 63) - 1


def create_token(
    view: ControllerView,
    settings: DelegationTokens | None,
    now_ms: int,
    *,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    renewers: Sequence[KafkaPrincipal],
    max_lifetime_ms: int,
) -> ControllerResult[DelegationTokenRecord]:
    """A new token; ``max_lifetime_ms`` above 0 makes its longest life shorter. ``ApiError``."""
    settings = _enabled(view, settings)
    lifetime = settings.max_lifetime_ms
    if max_lifetime_ms > 0:
        lifetime = min(lifetime, max_lifetime_ms)
    if any(renewer.principal_type != USER_TYPE for renewer in renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    max_timestamp = _sum(now_ms, lifetime)
    token = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[str(renewer) for renewer in renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, _sum(now_ms, settings.expiry_time_ms)),
        token_id=_new_id(view),
    )
    return ControllerResult(token, [token])


def renew_token(
    view: ControllerView,
    settings: DelegationTokens | None,
    now_ms: int,
    *,
    requester: KafkaPrincipal,
    secret: bytes,
    period_ms: int,
) -> ControllerResult[int]:
    """Have a token expire later; the time of that. ``period_ms`` above 0 makes it sooner than usual. ``ApiError``."""
    settings = _enabled(view, settings)
    token = _found(view, settings, secret)
    if has_expired(token, now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, requester)
    period = settings.expiry_time_ms
    if period_ms > 0:
        period = min(period, period_ms)
    return _expire_at(token, _sum(now_ms, period))


def expire_token(
    view: ControllerView,
    settings: DelegationTokens | None,
    now_ms: int,
    *,
    requester: KafkaPrincipal,
    secret: bytes,
    period_ms: int,
) -> ControllerResult[int]:
    """Have a token expire at another time, within its longest life; remove it if ``period_ms`` is below 0.

    The time of that. ``ApiError``.
    """
    settings = _enabled(view, settings)
    token = _found(view, settings, secret)
    _check_renewer(token, requester)
    if period_ms < 0:
        return ControllerResult(now_ms, [RemoveDelegationTokenRecord(token_id=token.token_id)])
    if has_expired(token, now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _expire_at(token, _sum(now_ms, period_ms))


def remove_expired_tokens(view: ControllerView, now_ms: int) -> ControllerResult[bool]:
    """Remove tokens that have expired, some at a time; whether there may be more."""
    tokens = view.image.principals.delegation_tokens.values()
    expired = [RemoveDelegationTokenRecord(token_id=token.token_id) for token in tokens if has_expired(token, now_ms)]
    some = expired[:MOST_EXPIRED_AT_ONCE]
    return ControllerResult(len(some) == MOST_EXPIRED_AT_ONCE, some)


def _enabled(view: ControllerView, settings: DelegationTokens | None) -> DelegationTokens:
    if settings is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if view.image.features.metadata_version < DELEGATION_TOKENS:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    return settings


def _found(view: ControllerView, settings: DelegationTokens, secret: bytes) -> DelegationTokenRecord:
    token = settings.find(secret, view.image.principals.delegation_tokens)
    if token is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_renewer(token: DelegationTokenRecord, requester: KafkaPrincipal) -> None:
    if not may_renew(token, requester):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expire_at(token: DelegationTokenRecord, timestamp: int) -> ControllerResult[int]:
    timestamp = min(token.max_timestamp, timestamp)
    changed = DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=timestamp,
        token_id=token.token_id,
    )
    return ControllerResult(timestamp, [changed])


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(_LAST, now_ms + duration_ms)


def _new_id(view: ControllerView) -> str:
    while True:
        token_id = uuid_to_str(random_uuid(view.rng))
        if token_id not in view.image.principals.delegation_tokens:
            return token_id
