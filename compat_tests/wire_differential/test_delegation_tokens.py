"""Delegation tokens: the same requests, in the same order and in each version, to Apache Kafka 4.4.0 and to kbroker.

Users log in with PLAIN and with tokens, on a listener of clients; another listener and the controller's have no
authentication. kbroker runs in the test's own process. Ids, secrets and times differ: times are compared in hours
from now.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.clients import skip_without
from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.messages.acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import Client, running_node
from tests.node.token_harness import try_login
from tests.patience import LONG, SHORT

HOUR = 3_600_000
USERS = ("admin", "alice", "bob", "carol", "dora", "erin", "fred")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_RECENT = 1_750_000_000_000

Login = Callable[[], Awaitable[Client]]

feature = pytest.mark.feature


def _properties(listeners: str, **more: str) -> dict[str, str]:
    users = " ".join(f'user_{user}="secret"' for user in USERS)
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": (
            f'{MODULE} required username="admin" password="secret" {users};'
        ),
        "listener.name.clients.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.clients.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.max.lifetime.ms": str(48 * HOUR),
        "delegation.token.expiry.time.ms": str(12 * HOUR),
        **more,
    }


async def _open(address: tuple[str, int]) -> Client:
    return Client(await trio.open_tcp_stream(*address))


async def _user(address: tuple[str, int], user: str) -> Client:
    client = await _open(address)
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0secret".encode()), 2)
    assert answer.error_code == 0, answer
    return client


def _plain(value: Any, name: str = "") -> Any:
    """A form that can be compared: times are hours from now, as all that the requests ask for, and tokens are in the
    order of their people."""
    if dataclasses.is_dataclass(value):
        return {
            each.name: _plain(getattr(value, each.name), each.name)
            for each in dataclasses.fields(value)
            if each.name != "throttle_time_ms"
        }
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=repr)
    if name == "token_id":
        return len(value)
    if name == "hmac":
        return len(bytes(value))
    if "timestamp" in name and value > _RECENT:
        return f"in {round((value - time.time() * 1000) / HOUR)} hours"
    return int(value) if isinstance(value, int) else value


class Side:
    """A broker of the pair, with clients of its users and the tokens that it has made."""

    def __init__(self, ports: dict[str, tuple[str, int]]) -> None:
        self._ports = ports
        self._clients: dict[str, Client] = {}
        self.tokens: dict[str, Any] = {}

    async def ask(self, who: str, request: Any, version: int) -> Any:
        """The answer to a user, to who comes by a listener without authentication, or to one with a token."""
        if who not in self._clients:
            self._clients[who] = await self._come(who)
        return await self._clients[who].ask(request, version)

    async def _come(self, who: str) -> Client:
        if who in self._ports:
            return await _open(self._ports[who])
        if who not in self.tokens:
            return await _user(self._ports["CLIENTS"], who)
        while True:  # Apache Kafka's broker learns of a token a moment after it is made
            client = await _open(self._ports["CLIENTS"])
            if not (await self.login(client, who)).error_code:
                return client

    async def login(self, client: Client, token: str, mechanism: int = 2, secret: bytes | None = None) -> Any:
        """The last answer to a login with a token."""
        made = self.tokens[token]
        return await try_login(client, made.token_id, secret or bytes(made.hmac), ScramMechanism(mechanism))

    async def fresh(self) -> Client:
        """A connection to the listener of clients."""
        return await _open(self._ports["CLIENTS"])


class Pair:
    """Both brokers, asked the same."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours = ours
        self.theirs = theirs
        self.different: list[str] = []
        self.asked = 0

    async def ask(self, who: str, request: Any, version: int, *, keep: str = "") -> None:
        """Ask both a request, or what ``request(side)`` makes; ``keep`` the answer's token under a name.

        What Apache Kafka's broker has not learnt yet is asked again.
        """
        self.asked += 1
        own, others = (request(side) if callable(request) else request for side in (self.ours, self.theirs))
        mine = await self.ours.ask(who, own, version)
        deadline = trio.current_time() + SHORT
        while True:
            other = await self.theirs.ask(who, others, version)
            if _plain(mine) == _plain(other):
                break
            late = isinstance(others, DescribeDelegationTokenRequest)
            late = late or other.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            if not late or trio.current_time() > deadline:
                self.different.append(f"{who} {type(own).__name__} v{version}: {_plain(mine)}, not {_plain(other)}")
                break
        if keep:
            self.ours.tokens[keep], self.theirs.tokens[keep] = mine, other


def creation(version: int, *renewers: str, **more: Any) -> CreateDelegationTokenRequest:
    """A request for a token; ``owner`` from version 3 on."""
    fields: dict[str, Any] = {"owner_principal_type": "", "owner_principal_name": ""}
    if version >= 3 and more.get("by_null"):
        fields = dict.fromkeys(fields)
    more.pop("by_null", None)
    kind = more.pop("kind", "User")
    made = [CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers]
    return CreateDelegationTokenRequest(**{**fields, "renewers": made, "max_lifetime_ms": -1, **more})


def describing(*owners: str) -> DescribeDelegationTokenRequest:
    """A request for the tokens of some owners."""
    return DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    )


def renewal(token: str, period_ms: int) -> Callable[[Side], RenewDelegationTokenRequest]:
    """A request to renew a token, which has another secret at each broker."""
    return lambda side: RenewDelegationTokenRequest(hmac=bytes(side.tokens[token].hmac), renew_period_ms=period_ms)


def expiry(token: str, period_ms: int) -> Callable[[Side], ExpireDelegationTokenRequest]:
    """A request to have a token expire."""
    return lambda side: ExpireDelegationTokenRequest(
        hmac=bytes(side.tokens[token].hmac), expiry_time_period_ms=period_ms
    )


async def _lives(pair: Pair, version: int) -> None:
    """A token from its beginning to its end, with all who may have a say in it; requests in two or three versions."""
    older = min(version, 2)
    name = f"token-{version}"
    for lifetime in (-1, 0, -5, HOUR, 60 * HOUR, 2**63 - 1, -(2**63)):
        await pair.ask("erin", creation(version, max_lifetime_ms=lifetime), version)
    await pair.ask("alice", creation(version, "bob", "dora", by_null=True), version, keep=name)
    everybody = ("alice", "bob", "carol", "dora", "fred", "admin")
    for who in everybody:
        for owners in ((), ("alice",), ("bob",), ("carol", "dora"), ("nobody",)):
            await pair.ask(who, describing(*owners), version)
        await pair.ask(who, DescribeDelegationTokenRequest(owners=None), version)
    for who in everybody:
        for period in (-1, 0, HOUR, 60 * HOUR, 2**63 - 1):
            await pair.ask(who, renewal(name, period), older)
    for secret in (b"", b"x", bytes(64)):
        await pair.ask("alice", RenewDelegationTokenRequest(hmac=secret), older)
        await pair.ask("alice", ExpireDelegationTokenRequest(hmac=secret), older)
    for who in everybody:
        for period in (3 * HOUR, 60 * HOUR, 2**63 - 1):
            await pair.ask(who, expiry(name, period), older)
    for request in (
        creation(version),
        creation(version, "x", kind="Group"),
        describing(),
        DescribeDelegationTokenRequest(owners=None),
    ):
        for who in (name, "OPEN"):
            await pair.ask(who, request, version)
    for who in (name, "OPEN", "CONTROLLER"):
        await pair.ask(who, renewal(name, -1), older)
        await pair.ask(who, expiry(name, -1), older)
    await pair.ask("CONTROLLER", creation(version), version)
    await pair.ask("CONTROLLER", creation(version, "x", kind="Group"), version)
    await pair.ask("alice", creation(version, "x", kind="Group"), version)
    await pair.ask("carol", expiry(name, -1), older)
    await pair.ask("dora", expiry(name, -1), older)
    for who in ("alice", "admin"):
        await pair.ask(who, describing("alice"), version)
    await pair.ask("dora", expiry(name, -1), older)
    await pair.ask("alice", renewal(name, -1), older)


async def _owners(pair: Pair) -> None:
    """Tokens for others (KIP-373): fred may make those of alice, and describe those of bob."""

    def of(kind: str | None, name: str | None) -> CreateDelegationTokenRequest:
        return creation(3, owner_principal_type=kind, owner_principal_name=name)

    for who in ("alice", "bob", "fred", "admin"):
        for owner in (
            ("User", "alice"),
            ("User", "bob"),
            ("Group", "alice"),
            ("User", who),
            ("Group", ""),
            (None, "x"),
        ):
            await pair.ask(who, of(*owner), 3)
    for who in ("alice", "bob", "fred", "carol", "admin"):
        for version in (1, 2, 3):
            await pair.ask(who, DescribeDelegationTokenRequest(owners=None), version)
            await pair.ask(who, describing("alice", "bob"), version)
    await pair.ask("fred", of("User", "alice"), 3, keep="of alice")
    await pair.ask("fred", renewal("of alice", -1), 2)
    await pair.ask("alice", renewal("of alice", -1), 2)
    await pair.ask("of alice", of("User", "alice"), 3)


async def _give_rights(side: Side) -> None:
    acls = [
        AclCreation(
            resource_type=ResourceType.USER,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:fred",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        for operation, name in ((AclOperation.CREATE_TOKENS, "User:alice"), (AclOperation.DESCRIBE_TOKENS, "User:bob"))
    ]
    answer = await side.ask("admin", CreateAclsRequest(creations=acls), 3)
    assert not any(result.error_code for result in answer.results), answer


def _judge(tmp_path: Path, script: Callable[[Pair], Awaitable[None]], **more: str) -> None:
    skip_without("java")
    names = ("CLIENTS", "OPEN", "CONTROLLER")
    ports = dict(zip(names, free_ports(3), strict=True))
    apache = ApacheKafka(
        port=ports["CLIENTS"],
        controller_port=ports["CONTROLLER"],
        heap=("-Xmx512M",),
        properties=_properties(",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()), **more),
    )

    async def main() -> None:
        with trio.fail_after(8 * LONG):
            theirs = Side({name: ("127.0.0.1", port) for name, port in ports.items()})
            own = _properties(",".join(f"{name}://127.0.0.1:0" for name in names), **more)
            async with running_node(tmp_path, **own) as node:
                pair = Pair(Side(dict(node.broker.ports)), theirs)
                await script(pair)
        assert pair.asked
        assert not pair.different, "\n".join(pair.different)

    with apache:
        trio.run(main)


@feature("wire", "Answers equal to Apache Kafka's", "delegation tokens")
def test_tokens(tmp_path: Path) -> None:
    async def script(pair: Pair) -> None:
        for side in (pair.ours, pair.theirs):
            await _give_rights(side)
        for version in (1, 2, 3):
            await _lives(pair, version)
        await _owners(pair)
        await _logins(pair)

    _judge(tmp_path, script, **{"delegation.token.secret.key": "key"})


async def _logins(pair: Pair) -> None:
    """Both mechanisms take a token's secret, and refuse another with the same words."""
    await pair.ask("alice", creation(3), 3, keep="to log in")
    for side in (pair.ours, pair.theirs):
        await side.ask("to log in", creation(3), 3)
    for mechanism in (1, 2):
        for secret in (None, bytes(64)):
            mine, other = [
                await side.login(await side.fresh(), "to log in", mechanism, secret)
                for side in (pair.ours, pair.theirs)
            ]
            told = [(each.error_code, each.error_message, _hours(each)) for each in (mine, other)]
            if told[0] != told[1]:
                pair.different.append(f"login: {told}")


def _hours(answer: Any) -> int:
    return round(int(answer.session_lifetime_ms) / HOUR)


@feature("wire", "Answers equal to Apache Kafka's", "delegation tokens where there are none")
def test_without_a_key(tmp_path: Path) -> None:
    async def script(pair: Pair) -> None:
        for version in (1, 2, 3):
            for who in ("alice", "OPEN"):
                await pair.ask(who, creation(version, "bob"), version)
                await pair.ask(who, creation(version, "bob", kind="Group"), version)
                await pair.ask(who, DescribeDelegationTokenRequest(owners=None), version)
                await pair.ask(who, describing(), version)
                await pair.ask(who, RenewDelegationTokenRequest(hmac=b"x"), min(version, 2))
                await pair.ask(who, ExpireDelegationTokenRequest(hmac=b"x"), min(version, 2))

    _judge(tmp_path, script)
