"""Questions about delegation tokens (keys 38 to 41)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kbroker.client.cluster import Client, refuse
from kbroker.security.principal import KafkaPrincipal
from kbroker.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kbroker.wire.schema import Request

_BROKERS_CHOICE = -1


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token. Times are milliseconds since 1970; no text shows the secret."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    issued_ms: int
    expires_ms: int
    max_ms: int
    secret: bytes = field(repr=False)
    renewers: tuple[KafkaPrincipal, ...] = ()

    @property
    def password(self) -> str:
        """The secret as a password of SCRAM."""
        return base64.b64encode(self.secret).decode("ascii")


def create_token(
    client: Client,
    *,
    owner: KafkaPrincipal | None = None,
    renewers: Sequence[KafkaPrincipal] = (),
    max_lifetime_ms: int | None = None,
) -> Token:
    """A new token, of the client's own user or of another; ``ResponseError``."""

    def check(response: CreateDelegationTokenResponse) -> None:
        refuse(response.error_code, "token")

    request = CreateDelegationTokenRequest(
        owner_principal_type="" if owner is None else owner.principal_type,
        owner_principal_name="" if owner is None else owner.name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=_BROKERS_CHOICE if max_lifetime_ms is None else max_lifetime_ms,
    )
    answer = client.ask_controller(request, check)
    made_for = KafkaPrincipal(answer.principal_type, answer.principal_name)
    requester = KafkaPrincipal(answer.token_requester_principal_type, answer.token_requester_principal_name)
    return Token(
        token_id=answer.token_id,
        owner=made_for,
        requester=requester if requester.principal_type else made_for,
        issued_ms=answer.issue_timestamp_ms,
        expires_ms=answer.expiry_timestamp_ms,
        max_ms=answer.max_timestamp_ms,
        secret=bytes(answer.hmac),
        renewers=tuple(renewers),
    )


def describe_tokens(client: Client, owners: Iterable[KafkaPrincipal] | None = None) -> list[Token]:
    """The tokens that the client may see, the oldest first: of these owners and renewers, or of all."""
    entries = None
    if owners is not None:
        entries = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in owners]
    response = client.ask_any(DescribeDelegationTokenRequest(owners=entries))
    refuse(response.error_code, "tokens")
    return sorted(map(_token, response.tokens), key=lambda token: (token.issued_ms, token.token_id))


def _token(told: DescribedDelegationToken) -> Token:
    owner = KafkaPrincipal(told.principal_type, told.principal_name)
    requester = KafkaPrincipal(told.token_requester_principal_type, told.token_requester_principal_name)
    return Token(
        token_id=told.token_id,
        owner=owner,
        requester=requester if requester.principal_type else owner,
        issued_ms=told.issue_timestamp,
        expires_ms=told.expiry_timestamp,
        max_ms=told.max_timestamp,
        secret=bytes(told.hmac),
        renewers=tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in told.renewers),
    )


def renew_token(client: Client, token: Token, period_ms: int | None = None) -> int:
    """Have a token expire later, by the broker's choice at most; when it does."""
    period = _BROKERS_CHOICE if period_ms is None else period_ms
    return _change(client, token, RenewDelegationTokenRequest(hmac=token.secret, renew_period_ms=period))


def expire_token(client: Client, token: Token, period_ms: int | None = None) -> int:
    """Have a token expire after a period, or at once; when it does."""
    period = -1 if period_ms is None else period_ms
    return _change(client, token, ExpireDelegationTokenRequest(hmac=token.secret, expiry_time_period_ms=period))


def _change(
    client: Client, token: Token, request: Request[RenewDelegationTokenResponse | ExpireDelegationTokenResponse]
) -> int:
    response = client.ask_controller(request, lambda answer: refuse(answer.error_code, f"token {token.token_id}"))
    return response.expiry_timestamp_ms
