"""Delegation tokens on one node, by raw requests: what they are good for, and what is refused."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode as E
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.handlers.principals import ByName
from tests.node.node_harness import Node, batch, judge_by, produce_request, run, running_node
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


def talk(
    path: Path,
    test: Callable[[Node, Later], Awaitable[None]],
    caplog: pytest.LogCaptureFixture | None = None,
    /,
    **more: str,
) -> None:
    """Run ``test(node, env)`` on a node with tokens."""

    async def main() -> None:
        env = Later(seed=1)
        async with running_node(path, env, **{**PROPERTIES, **more}) as node:
            await test(node, env)

    if caplog is None:
        run(main)
        return
    with caplog.at_level(logging.DEBUG):
        run(main)


def test_a_token_logs_in_as_its_owner_in_every_version(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets: list[bytes] = []

    async def test(node: Node, env: Later) -> None:
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

    talk(tmp_path, test, caplog)
    assert len(set(secrets)) == 6
    assert KEY not in caplog.text
    for secret in secrets:
        assert repr(secret)[2:20] not in caplog.text


def test_a_token_is_renewed_expired_and_removed(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        env.stand_at(env.wall_clock_ms())
        alice, bob, carol = [await user(node, name) for name in ("alice", "bob", "carol")]
        for version in (1, 2):
            token = await create(alice, "bob")
            env.ahead_ms += 1000
            longer = (await renew(bob, token.hmac, version=version)).expiry_timestamp_ms
            assert longer >= token.expiry_timestamp_ms + 1000
            shorter = await expire(bob, token.hmac, 5000, version)
            assert shorter.error_code == 0 and shorter.expiry_timestamp_ms < token.expiry_timestamp_ms
            assert [each.expiry_timestamp for each in await described(alice)] == [shorter.expiry_timestamp_ms]
            # Nobody else, and nobody with another secret.
            for answer in (await renew(carol, token.hmac, version=version), await expire(carol, token.hmac)):
                assert (answer.error_code, answer.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
            wrong = bytes([token.hmac[0] ^ 1]) + bytes(token.hmac[1:])
            for secret in (wrong, b"", bytes(token.hmac[:63]), bytes(token.hmac) + b"\0", token.token_id.encode()):
                assert (await renew(alice, secret, version=version)).error_code == E.DELEGATION_TOKEN_NOT_FOUND
                assert (await expire(alice, secret, version=version)).error_code == E.DELEGATION_TOKEN_NOT_FOUND
            # No renewal leads beyond the longest life.
            env.ahead_ms += 4000
            later = await expire(alice, token.hmac, 100 * DAY, version)
            assert later.expiry_timestamp_ms == token.max_timestamp_ms
            gone = await expire(alice, token.hmac, -1, version)
            assert gone.error_code == 0 and gone.expiry_timestamp_ms <= env.wall_clock_ms()
            assert (await renew(alice, token.hmac, version=version)).error_code == E.DELEGATION_TOKEN_NOT_FOUND
            assert await described(alice) == []

    talk(tmp_path, test)


def test_lives_are_limited(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        env.stand_at(env.wall_clock_ms())
        alice = await user(node, "alice")
        for asked, lifetime in ((-1, 10_000), (0, 10_000), (20_000, 10_000), (2**63 - 1, 10_000), (3000, 3000)):
            token = await create(alice, max_lifetime_ms=asked)
            assert token.max_timestamp_ms == token.issue_timestamp_ms + lifetime
            assert token.expiry_timestamp_ms == token.issue_timestamp_ms + min(lifetime, 4000)
        renewed = await renew(alice, token.hmac, 2**63 - 1)
        assert renewed.expiry_timestamp_ms == token.max_timestamp_ms

    talk(
        tmp_path,
        test,
        **{"delegation.token.max.lifetime.ms": "10000", "delegation.token.expiry.time.ms": "4000"},
    )


def test_a_wrong_secret_and_a_wrong_id_are_told_alike(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        token = await create(await user(node, "alice"))
        removed = await create(await user(node, "alice"))
        await expire(await user(node, "alice"), removed.hmac)
        for token_id, secret in (
            (token.token_id, bytes(64)),
            (removed.token_id, bytes(removed.hmac)),
            ("A" * 22, bytes(token.hmac)),
            ("alice", b"alice-secret"),
        ):
            answer = await try_login(await node.connect(), token_id, secret)
            assert (answer.error_code, answer.error_message) == (E.SASL_AUTHENTICATION_FAILED, INVALID)
        # A token is none of the users, nor a user one of the tokens.
        answer = await try_login(await node.connect(), token.token_id, bytes(token.hmac), is_token=False)
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED

    talk(tmp_path, test)


def test_a_connection_ends_with_its_token(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        alice = await user(node, "alice")
        token = await create(alice)
        client = await node.connect()
        env.ahead_ms += DAY - 60_000
        answer = await try_login(client, token.token_id, bytes(token.hmac))
        assert 0 < answer.session_lifetime_ms <= 60_000
        # It may authenticate again while the token holds; a longer token is a longer session.
        renewed = (await renew(alice, token.hmac, DAY)).expiry_timestamp_ms
        session = node.broker.listeners[0]._connections
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

    talk(tmp_path, test)


RULE = """
import math

class Rule:
    keep_seconds = math.inf

    def authorize(self, action):
        return not action.principal.token_authenticated or action.operation.name != "WRITE"
"""


def test_a_shortcut_is_forgotten_when_the_client_authenticates_again(tmp_path: Path) -> None:
    """The same user comes by a token then, and an authorizer may deny that one what the user may do."""
    (tmp_path / "rule.py").write_text(RULE)

    async def test(node: Node, env: Later) -> None:
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
            for connection in server._connections
        ):
            assert await produce() == 0
        assert (await try_login(client, token.token_id, bytes(token.hmac))).error_code == 0
        assert await produce() == E.TOPIC_AUTHORIZATION_FAILED

    more = {
        "authorizer.class.name": f"python:{tmp_path / 'rule.py'}:Rule",
        "super.users": "User:broker;User:ANONYMOUS",
        "connections.max.reauth.ms": "60000",
    }
    talk(tmp_path, test, **more)


def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        alice = await user(node, "alice")
        for _ in range(3):
            await create(alice, max_lifetime_ms=5000)
        kept = await create(alice)
        env.ahead_ms += 6000
        await node.broker.metadata.wait_for_image(lambda image: len(image.principals.delegation_tokens) == 1)
        assert [each.token_id for each in await described(alice)] == [kept.token_id]

    talk(tmp_path, test, **{"delegation.token.expiry.check.interval.ms": "20"})


def test_tokens_are_there_after_a_restart_and_gone_without_the_key(tmp_path: Path) -> None:
    made: list[Any] = []

    async def first(node: Node, env: Later) -> None:
        made.append(await create(await user(node, "alice"), "bob"))

    async def second(node: Node, env: Later) -> None:
        [token] = await described(await user(node, "bob"))
        assert (token.token_id, bytes(token.hmac)) == (made[0].token_id, bytes(made[0].hmac))
        assert [each.principal_name for each in token.renewers] == ["bob"]
        await login(node, made[0])

    async def without(node: Node, env: Later) -> None:
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

    talk(tmp_path, first)
    talk(tmp_path, second)
    talk(tmp_path, without, **{"delegation.token.secret.key": ""})
    # A token of another key is as good as none.
    talk(tmp_path, lambda node, env: _refused(node, made[0]), **{"delegation.token.secret.key": "another"})


async def _refused(node: Node, token: Any) -> None:
    answer = await try_login(await node.connect(), token.token_id, bytes(token.hmac))
    assert answer.error_code == E.SASL_AUTHENTICATION_FAILED


def test_nobody_sees_or_makes_tokens_of_others_without_permission(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        create_tokens = (AclOperation.CREATE_TOKENS, ResourceType.USER)
        describe = (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
        describe_tokens = (AclOperation.DESCRIBE_TOKENS, ResourceType.USER)
        rules = ByName()
        judge_by(node.broker.services, rules)
        for name in ("alice", "bob", "carol"):
            rules.deny(name, create_tokens, describe, describe_tokens)
        alice, bob, carol = [await user(node, name) for name in ("alice", "bob", "carol")]
        own = await create(alice, "bob")
        refused = await carol.ask(creation(owner="alice"), 3)
        assert refused.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "carol")
        assert ("carol", create_tokens, "User:alice") in rules.asked
        assert await described(carol) == [] and await described(carol, "alice", "bob") == []
        assert [each.token_id for each in await described(bob)] == [own.token_id]
        assert [each.token_id for each in await described(bob, "alice")] == [own.token_id]
        assert await described(bob, "carol") == []
        answer = await alice.ask(DescribeDelegationTokenRequest(owners=[]), 3)
        assert (answer.error_code, answer.tokens) == (0, [])
        # With it, carol asks for a token of alice's: its owner and who has asked for it see it, and it is alice's.
        rules.deny("carol", describe, describe_tokens)
        of_alice = await create(carol, owner="alice")
        assert {each.token_id for each in await described(alice)} == {own.token_id, of_alice.token_id}
        [seen] = await described(carol)
        assert seen.token_id == of_alice.token_id
        assert (seen.principal_name, seen.token_requester_principal_name) == ("alice", "carol")
        assert (await renew(carol, of_alice.hmac)).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH
        for allowed in (describe, describe_tokens):
            rules.deny("carol", allowed)
            assert len(await described(carol)) == 2

    talk(tmp_path, test)


def test_only_users_renew(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        alice = await user(node, "alice")
        refused = await alice.ask(creation("bob", kind="Group"), 3)
        assert (refused.error_code, refused.issue_timestamp_ms) == (E.INVALID_PRINCIPAL_TYPE, -1)
        request = creation(owner="bob")
        request.owner_principal_type = None
        refused = await alice.ask(request, 3)
        assert (refused.error_code, refused.principal_name) == (E.UNKNOWN_SERVER_ERROR, "ANONYMOUS")
        assert await described(alice) == []

    talk(tmp_path, test)


def test_plaintext_listeners_give_no_tokens(tmp_path: Path) -> None:
    async def test(node: Node, env: Later) -> None:
        for listener in ("OPEN", "CONTROLLER"):
            client = await node.connect(listener)
            refused = await client.ask(creation(), 3)
            assert refused.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert (refused.principal_name, refused.issue_timestamp_ms) == ("ANONYMOUS", -1)
            for answer in (await renew(client, b"a"), await expire(client, b"a")):
                assert answer.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                assert answer.expiry_timestamp_ms == -1
            answer = await client.ask(DescribeDelegationTokenRequest(owners=None), 3)
            assert answer.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    talk(
        tmp_path,
        test,
        **{
            "listeners": "PLAINTEXT://127.0.0.1:0,OPEN://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
    )
