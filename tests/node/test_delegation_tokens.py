"""Delegation tokens on one node, by raw requests: what they are good for, and what is refused."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode as E
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.wire.messages.delegation_tokens import (
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Node, batch, produce_request, running_node
from tests.node.token_harness import (
    DAY,
    KEY,
    PROPERTIES,
    Later,
    create,
    creation,
    described,
    expire,
    login,
    renew,
    try_login,
    user,
)

INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"


@asynccontextmanager
async def node_with_tokens(
    path: Path, caplog: pytest.LogCaptureFixture | None = None, /, **more: str
) -> AsyncIterator[tuple[Node, Later]]:
    env = Later(seed=1)
    with caplog.at_level(logging.DEBUG) if caplog else nullcontext():
        async with running_node(path, env, **{**PROPERTIES, **more}) as node:
            yield node, env


async def test_a_token_logs_in_as_its_owner_in_every_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets: list[bytes] = []

    async with node_with_tokens(tmp_path, caplog) as (node, env):
        alice = await user(node, "alice")
        now = env.wall_clock_ms()
        for version in (1, 2, 3):
            for mechanism in ScramMechanism:
                token = await create(alice, version=version)
                secrets.append(bytes(token.hmac))
                assert (token.principal_type, token.principal_name) == ("User", "alice")
                requester = (token.token_requester_principal_type, token.token_requester_principal_name)
                assert requester == (("User", "alice") if version == 3 else ("", ""))
                assert len(token.hmac) == 64 and len(token.token_id) == 22
                assert now <= token.issue_timestamp_ms <= env.wall_clock_ms()
                assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY
                assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY
                client = await login(node, token, mechanism)
                assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers
                # The one who has a token is nobody else than its owner, and yet gets no other token.
                refused = await client.ask(creation(), version)
                assert refused.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                assert (refused.principal_name, refused.max_timestamp_ms, refused.hmac) == ("alice", -1, b"")
                for request in (RenewDelegationTokenRequest, ExpireDelegationTokenRequest):
                    answer = await client.ask(request(hmac=bytes(token.hmac)), 2)
                    assert answer.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                    assert answer.expiry_timestamp_ms == -1
                answer = await client.ask(DescribeDelegationTokenRequest(owners=None), version)
                assert answer.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert len(set(secrets)) == 6
    assert KEY not in caplog.text
    for secret in secrets:
        assert repr(secret)[2:20] not in caplog.text


async def test_a_connection_ends_with_its_token(tmp_path: Path) -> None:
    async with node_with_tokens(tmp_path) as (node, env):
        alice = await user(node, "alice")
        token = await create(alice)
        client = await node.connect()
        env.ahead_ms += DAY - 60_000
        answer = await try_login(client, token.token_id, bytes(token.hmac))
        assert 0 < answer.session_lifetime_ms <= 60_000
        # It may authenticate again while the token holds; a longer token is a longer session.
        renewed = (await renew(alice, token.hmac, DAY)).expiry_timestamp_ms
        session = node.broker.listeners[0].connections
        connection = next(each for each in session if each.principal.token_authenticated)
        assert isinstance(connection.session, SaslConversation)
        connection.session._began_at = None
        answer = await try_login(client, token.token_id, bytes(token.hmac))
        assert DAY - 70_000 < answer.session_lifetime_ms <= DAY
        # With little time left it is let in, and served no more once the time is over.
        env.stand_at(renewed - 200)
        last = await login(node, token)
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            while True:
                await last.ask(MetadataRequest(topics=[]), 12)
        env.ahead_ms += 1000
        refused = await try_login(await node.connect(), token.token_id, bytes(token.hmac))
        assert (refused.error_code, refused.error_message) == (E.SASL_AUTHENTICATION_FAILED, INVALID)
        for answer in (await renew(alice, token.hmac), await expire(alice, token.hmac, 1000)):
            assert answer.error_code == E.DELEGATION_TOKEN_EXPIRED
        assert (await expire(alice, token.hmac)).error_code == 0


RULE = """
import math

class Rule:
    keep_seconds = math.inf

    def authorize(self, action):
        return not action.principal.token_authenticated or action.operation.name != "WRITE"
"""


async def test_a_shortcut_is_forgotten_when_the_client_authenticates_again(tmp_path: Path) -> None:
    """The same user comes by a token then, and an authorizer may deny that one what the user may do."""
    (tmp_path / "rule.py").write_text(RULE)

    more = {
        "authorizer.class.name": f"python:{tmp_path / 'rule.py'}:Rule",
        "super.users": "User:broker;User:ANONYMOUS",
        "connections.max.reauth.ms": "60000",
    }
    async with node_with_tokens(tmp_path, **more) as (node, _):
        client, password = await user(node, "alice"), b"alice-password"
        token = await create(client)
        salted = ScramMechanism.SCRAM_SHA_512.salted_password(base64.b64encode(password).decode(), b"salt", 4096)
        upsertion = ScramCredentialUpsertion(
            name="alice", mechanism=2, iterations=4096, salt=b"salt", salted_password=salted
        )
        (set_,) = (await client.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]))).results
        assert set_.error_code == 0
        client = await node.connect()
        assert (await try_login(client, "alice", password, is_token=False)).error_code == 0
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert (await client.ask(CreateTopicsRequest(topics=[topic]))).topics[0].error_code == 0

        async def produce() -> int:
            answer = await client.ask(produce_request("t", batch(b"x")), 9)
            return int(answer.responses[0].partition_responses[0].error_code)

        while not any(
            connection._dispatcher._shortcuts.known
            for server in node.broker.listeners
            for connection in server.connections
        ):
            assert await produce() == 0
        assert (await try_login(client, token.token_id, bytes(token.hmac))).error_code == 0
        assert await produce() == E.TOPIC_AUTHORIZATION_FAILED


async def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    async with node_with_tokens(tmp_path, **{"delegation.token.expiry.check.interval.ms": "20"}) as (node, env):
        alice = await user(node, "alice")
        for _ in range(3):
            await create(alice, max_lifetime_ms=5000)
        kept = await create(alice)
        env.ahead_ms += 6000
        await node.broker.metadata.wait_for_image(lambda image: len(image.principals.delegation_tokens) == 1)
        assert [each.token_id for each in await described(alice)] == [kept.token_id]


async def test_tokens_are_there_after_a_restart_and_gone_without_the_key(tmp_path: Path) -> None:
    made: list[Any] = []

    async with node_with_tokens(tmp_path) as (node, _):
        made.append(await create(await user(node, "alice"), "bob"))

    async with node_with_tokens(tmp_path) as (node, _):
        [token] = await described(await user(node, "bob"))
        assert (token.token_id, bytes(token.hmac)) == (made[0].token_id, bytes(made[0].hmac))
        assert [each.principal_name for each in token.renewers] == ["bob"]
        await login(node, made[0])

    async with node_with_tokens(tmp_path, **{"delegation.token.secret.key": ""}) as (node, _):
        answer = await try_login(await node.connect(), made[0].token_id, bytes(made[0].hmac))
        assert (answer.error_code, answer.error_message) == (E.SASL_AUTHENTICATION_FAILED, INVALID)
        alice = await user(node, "alice")
        refused = await alice.ask(creation(), 3)
        assert (refused.error_code, refused.principal_name) == (E.DELEGATION_TOKEN_AUTH_DISABLED, "alice")
        assert refused.issue_timestamp_ms == 0
        for answer in (await renew(alice, made[0].hmac), await expire(alice, made[0].hmac)):
            assert (answer.error_code, answer.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_AUTH_DISABLED, 0)
        answer = await alice.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert answer.error_code == E.DELEGATION_TOKEN_AUTH_DISABLED

    # A token of another key is as good as none.
    async with node_with_tokens(tmp_path, **{"delegation.token.secret.key": "another"}) as (node, _):
        answer = await try_login(await node.connect(), made[0].token_id, bytes(made[0].hmac))
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
