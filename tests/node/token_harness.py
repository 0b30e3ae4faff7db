"""A node with delegation tokens, by raw requests: users log in with PLAIN, tokens with SCRAM."""

from __future__ import annotations

import base64
from typing import Any

from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.scram import ScramClient, ScramMechanism
from kbroker.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import Client, Node

KEY = "the-key-of-tokens"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("broker", "alice", "bob", "carol"))
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="broker" password="broker-secret" {USERS};'
    ),
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": KEY,
}
DAY = 86_400_000


class Later(RealEnv):
    """The machine, whose clock of the day can be set forward, and stopped."""

    ahead_ms = 0
    _stands_at_ms: int | None = None

    def wall_clock_ms(self) -> int:
        """The time that the test wants it to be."""
        return (super().wall_clock_ms() if self._stands_at_ms is None else self._stands_at_ms) + self.ahead_ms

    def stand_at(self, time_ms: int) -> None:
        """Have it this time, until ``ahead_ms`` changes: what comes next may take as long as it likes."""
        self._stands_at_ms = time_ms - self.ahead_ms


async def user(node: Node, name: str) -> Client:
    """A connection of a user."""
    client = await node.connect()
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{name}\0{name}-secret".encode()
    assert (await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code == 0
    return client


async def try_login(
    client: Client,
    token_id: str,
    secret: bytes,
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
    *,
    is_token: bool = True,
) -> Any:
    """The last answer to a login with a token's id and secret, on a connection that is open."""
    scram = ScramClient(mechanism, token_id, base64.b64encode(secret).decode(), is_token=is_token)
    await client.ask(SaslHandshakeRequest(mechanism=mechanism.mechanism_name), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=scram.first()), 2)
    if answer.error_code:
        return answer
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=scram.respond(bytes(answer.auth_bytes))), 2)
    if not answer.error_code:
        scram.respond(bytes(answer.auth_bytes))
        assert scram.is_done
    return answer


async def login(node: Node, token: Any, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> Client:
    """A connection with a token."""
    client = await node.connect()
    assert (await try_login(client, token.token_id, bytes(token.hmac), mechanism)).error_code == 0
    return client


def creation(
    *renewers: str, owner: str | None = None, max_lifetime_ms: int = -1, kind: str = "User"
) -> CreateDelegationTokenRequest:
    """A request for a token."""
    return CreateDelegationTokenRequest(
        owner_principal_type="" if owner is None else "User",
        owner_principal_name=owner or "",
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )


async def create(client: Client, *renewers: str, version: int = 3, **more: Any) -> Any:
    """A new token."""
    token = await client.ask(creation(*renewers, **more), version)
    assert token.error_code == 0, token
    return token


async def renew(client: Client, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
    """The answer to a renewal."""
    return await client.ask(RenewDelegationTokenRequest(hmac=bytes(secret), renew_period_ms=period_ms), version)


async def expire(client: Client, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
    """The answer to an expiry; a negative period removes the token."""
    return await client.ask(ExpireDelegationTokenRequest(hmac=bytes(secret), expiry_time_period_ms=period_ms), version)


async def described(client: Client, *owners: str, version: int = 3) -> list[Any]:
    """The tokens that a client sees."""
    request = DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners] or None
    )
    answer = await client.ask(request, version)
    assert answer.error_code == 0, answer
    return list(answer.tokens)
