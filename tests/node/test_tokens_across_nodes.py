"""Delegation tokens on three nodes: made by any broker, good at each, and gone whoever leads when they expire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode as E
from kbroker.handlers.services.requester import principal_bytes
from kbroker.raft_metadata.metadata_version import DELEGATION_TOKENS
from kbroker.security.principal import KafkaPrincipal, TokenPrincipal
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.delegation_tokens import CreateDelegationTokenResponse
from kbroker.wire.messages.envelope import EnvelopeRequest
from tests.node.node_harness import Client, run
from tests.node.quorum_harness import Quorum, quorum
from tests.node.token_harness import (
    DAY,
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

Test = Callable[[Quorum, Later], Awaitable[None]]


def on_three_nodes(path: Path, test: Test, *, rounds: int = 1, **options: Any) -> None:
    """Run ``test`` on three nodes with one clock; for more ``rounds``, they are stopped and started in between."""

    async def main() -> None:
        env = Later(seed=1)
        async with quorum(path, **{**PROPERTIES, **options}) as cluster:
            for node_id in (1, 2, 3):
                cluster.envs[node_id] = env
            for _ in range(rounds):
                await cluster.start(1, 2, 3)
                await cluster.await_leader()
                await test(cluster, env)
                await cluster.stop(*cluster.nodes)

    run(main)


def tokens(cluster: Quorum) -> list[set[str]]:
    """The ids that each node knows."""
    return [set(node.metadata.image.principals.delegation_tokens) for node in cluster.nodes.values()]


def expiries(cluster: Quorum, token_id: str) -> set[int]:
    """The times at which a token ends, as the nodes know them."""
    images = [node.metadata.image.principals.delegation_tokens for node in cluster.nodes.values()]
    return {image[token_id].expiration_timestamp for image in images}


async def everywhere(cluster: Quorum, *token_ids: str) -> None:
    """Wait until these are the tokens that all nodes know."""
    await cluster.until(lambda: all(known == set(token_ids) for known in tokens(cluster)))


def test_any_broker_makes_tokens_and_all_know_them(tmp_path: Path) -> None:
    async def test(cluster: Quorum, env: Later) -> None:
        for node_id in (1, 2, 3):
            alice = await user(cluster.node(node_id), "alice")
            token = await create(alice, "bob")
            await everywhere(cluster, token.token_id)
            for other in (1, 2, 3):
                held = await login(cluster.node(other), token)
                assert (await held.ask(creation(), 3)).error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                bob, carol = [await user(cluster.node(other), name) for name in ("bob", "carol")]
                assert (await renew(carol, token.hmac)).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH
                assert (await renew(bob, token.hmac)).error_code == 0
                assert [bytes(each.hmac) for each in await described(bob)] == [bytes(token.hmac)]
            assert (await expire(bob, token.hmac)).error_code == 0
            await everywhere(cluster)

    on_three_nodes(tmp_path, test)


def test_an_envelope_says_who_came_with_a_token(tmp_path: Path) -> None:
    """The controller refuses them, too: a broker of an older release might not."""

    async def test(cluster: Quorum, env: Later) -> None:
        controller = await cluster.controller_client(await cluster.await_leader())
        for principal, code in (
            (KafkaPrincipal("User", "alice"), 0),
            (TokenPrincipal("User", "alice"), E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        ):
            answer = await _forwarded(controller, principal)
            assert (answer.error_code, answer.principal_name) == (code, "alice")

    on_three_nodes(tmp_path, test)


async def _forwarded(controller: Client, principal: KafkaPrincipal) -> CreateDelegationTokenResponse:
    inside = Conversation("client")
    data = b"".join(inside.send(creation(), 3))[4:]
    envelope = EnvelopeRequest(
        request_data=data, request_principal=principal_bytes(principal), client_host_address=b"\x7f\0\0\1"
    )
    answer = await controller.ask(envelope, 0)
    assert answer.error_code == 0
    response: CreateDelegationTokenResponse = inside.receive(memoryview(bytes(answer.response_data)))
    return response


def test_a_token_expires_whoever_leads(tmp_path: Path) -> None:
    async def test(cluster: Quorum, env: Later) -> None:
        leader = await cluster.await_leader()
        alice = await user(cluster.node(leader % 3 + 1), "alice")
        token = await create(alice)
        kept = await create(alice)
        env.ahead_ms += DAY // 2
        assert (await renew(alice, kept.hmac)).error_code == 0
        await everywhere(cluster, token.token_id, kept.token_id)
        await cluster.kill(leader)
        env.ahead_ms += DAY // 2 + 1000
        await cluster.await_leader()
        await everywhere(cluster, kept.token_id)
        node = cluster.node(leader % 3 + 1)
        refused = await try_login(await node.connect(), token.token_id, bytes(token.hmac))
        assert refused.error_code == E.SASL_AUTHENTICATION_FAILED
        await login(node, kept)

    on_three_nodes(tmp_path, test, delegation_token_expiry_check_interval_ms="50")


def test_tokens_are_in_snapshots(tmp_path: Path) -> None:
    made: list[Any] = []

    async def test(cluster: Quorum, env: Later) -> None:
        if not made:
            made.append(await create(await user(cluster.node(1), "alice")))
            env.ahead_ms += 1000
            made[0].expiry_timestamp_ms = (
                await renew(await user(cluster.node(2), "alice"), made[0].hmac)
            ).expiry_timestamp_ms
        await everywhere(cluster, made[0].token_id)
        await cluster.until(lambda: expiries(cluster, made[0].token_id) == {made[0].expiry_timestamp_ms})
        for node_id in (1, 2, 3):
            [token] = await described(await user(cluster.node(node_id), "alice"))
            assert (bytes(token.hmac), token.expiry_timestamp) == (bytes(made[0].hmac), made[0].expiry_timestamp_ms)
            await login(cluster.node(node_id), made[0])
        directory = tmp_path / "node1" / "__cluster_metadata-0"
        await cluster.until(lambda: len(list(directory.glob("*.checkpoint"))) > 0)

    on_three_nodes(tmp_path, test, rounds=2, **{"metadata.log.max.record.bytes.between.snapshots": "1"})


def test_an_older_level_of_metadata_has_no_tokens(tmp_path: Path) -> None:
    async def test(cluster: Quorum, env: Later) -> None:
        alice = await user(cluster.node(1), "alice")
        assert (await alice.ask(creation(), 3)).error_code == E.UNSUPPORTED_VERSION
        for answer in (await renew(alice, b"x"), await expire(alice, b"x")):
            assert answer.error_code == E.UNSUPPORTED_VERSION
        assert await described(alice) == []

    on_three_nodes(tmp_path, test, metadata_version=DELEGATION_TOKENS - 1)
