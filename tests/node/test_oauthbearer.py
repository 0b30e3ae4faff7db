"""OAUTHBEARER on a node: tokens of a provider, by raw frames; what is taken, what is refused, and when sessions end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.errors import FatalError
from kbroker.node.security.security import NodeSecurity
from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.oauthbearer.unsecured import unsecured_token
from kbroker.testing.token_provider import TokenProvider
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import Client, Node, configuration, run, running_node

PREFIX = "listener.name.plaintext.oauthbearer"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SIGNED = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
INVALID = b'{"status":"invalid_token"}'


@pytest.fixture
def provider() -> Iterator[TokenProvider]:
    with TokenProvider(clients={"broker": "broker-secret", "alice": "alice-secret"}, algorithm="ES256") as found:
        yield found


def listener(provider: TokenProvider) -> dict[str, str]:
    """A listener with OAUTHBEARER alone, by which the node logs in to itself, too."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        f"{PREFIX}.sasl.jaas.config": f"{MODULE} required;",
        f"{PREFIX}.sasl.server.callback.handler.class": SIGNED,
        f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        f"{PREFIX}.sasl.oauthbearer.expected.audience": "kbroker",
        f"{PREFIX}.sasl.oauthbearer.expected.issuer": provider.issuer,
        f"{PREFIX}.sasl.oauthbearer.token.endpoint.url": provider.token_url,
        f"{PREFIX}.sasl.oauthbearer.client.credentials.client.id": "broker",
        f"{PREFIX}.sasl.oauthbearer.client.credentials.client.secret": "broker-secret",
    }


async def shown(client: Client, token: str, version: int = 2) -> Any:
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return await client.ask(SaslAuthenticateRequest(auth_bytes=message), version)


async def shaken(node: Node) -> Client:
    client = await node.connect()
    response = await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert (response.error_code, response.mechanisms) == (0, ["OAUTHBEARER"])
    return client


async def let_in(node: Node, token: str) -> tuple[Client, int]:
    client = await shaken(node)
    response = await shown(client, token)
    assert (response.error_code, response.auth_bytes) == (0, b"")
    assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers
    return client, response.session_lifetime_ms


async def refused(node: Node, token: str) -> str:
    client = await shaken(node)
    response = await shown(client, token)
    assert (response.error_code, response.auth_bytes) == (0, INVALID)
    response = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    assert response.error_code == E.SASL_AUTHENTICATION_FAILED
    assert await client.closed()
    return str(response.error_message)


def talk(path: Path, provider: TokenProvider, test: Any, **more: str) -> None:
    async def main() -> None:
        async with running_node(path, **{**listener(provider), **more}) as node:
            await test(node)

    run(main)


def test_a_token_lets_in_until_it_ends(
    tmp_path: Path, provider: TokenProvider, caplog: pytest.LogCaptureFixture
) -> None:
    made = time.time()
    token = provider.token("alice")

    async def test(node: Node) -> None:
        client, lifetime = await let_in(node, token)
        passed_ms = (time.time() - made) * 1000
        assert 3_600_000 - passed_ms - 1000 < lifetime <= 3_600_000, "all that is left, but for a part of a second"
        wrong = provider.token("alice", aud="another")
        assert await refused(node, wrong) == INVALID.decode()
        # Another connection goes on.
        assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers
        assert wrong not in caplog.text

    with caplog.at_level(logging.DEBUG, "kbroker"):
        talk(tmp_path, provider, test)
    assert "claim aud names no audience" in caplog.text
    assert token not in caplog.text and "broker-secret" not in caplog.text


def test_new_keys_of_the_provider_are_asked_for_when_a_token_needs_them(
    tmp_path: Path, provider: TokenProvider
) -> None:
    async def test(node: Node) -> None:
        old = provider.token()
        await let_in(node, old)
        provider.rotate()
        await let_in(node, provider.token())
        assert provider.requests.count("/jwks") == 2
        await refused(node, old)
        # Whoever sends names of keys that do not exist has the provider asked no more for a while.
        for kid in range(20):
            await refused(node, provider.token(header={"kid": str(kid)}))
        assert provider.requests.count("/jwks") == 2

    talk(tmp_path, provider, test)


def test_a_provider_that_hangs_holds_nobody_else(tmp_path: Path, provider: TokenProvider) -> None:
    """A client whose token needs keys waits, not for ever, and is refused; a connection that is open goes on."""
    hanging = threading.Event()

    def hang() -> tuple[int, dict[str, str], bytes]:
        hanging.wait(20)
        return 200, {}, provider.jwks()

    async def test(node: Node) -> None:
        good = provider.token()
        client, _ = await let_in(node, good)
        node.allow(provider_wait=0.1)
        provider.answers["/jwks"] = hang
        assert "invalid_token" in await refused(node, provider.token(header={"kid": "newer"}))
        assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers
        await let_in(node, good)
        # Nobody's token is so long that it is worth reading.
        began = time.thread_time()
        assert "invalid_token" in await refused(node, f"{good}{'A' * 500_000}")
        assert time.thread_time() - began < 1
        hanging.set()

    try:
        talk(tmp_path, provider, test)
    finally:
        hanging.set()


def test_a_provider_that_is_away_when_the_node_starts(
    tmp_path: Path, provider: TokenProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is let in until the keys are there, which are asked for again and again."""
    provider.answers["/jwks"] = lambda: (503, {}, b"")

    async def test(node: Node) -> None:
        del provider.answers["/jwks"]
        await let_in(node, provider.token())

    talk(tmp_path, provider, test, **{f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "50"})
    assert "answers with status 503" in caplog.text


def test_keys_in_a_file_are_read_again_when_it_changes(tmp_path: Path, provider: TokenProvider) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(provider.jwks())

    async def test(node: Node) -> None:
        await let_in(node, provider.token())
        provider.rotate()
        path.write_bytes(b"[]")
        assert "invalid_token" in await refused(node, provider.token())
        path.write_bytes(provider.jwks())
        await let_in(node, provider.token())
        assert "/jwks" not in provider.requests

    talk(tmp_path, provider, test, **{f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": path.as_uri()})


def test_tokens_without_a_signature_only_where_it_is_said(
    tmp_path: Path, provider: TokenProvider, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {name: value for name, value in listener(provider).items() if ".sasl.oauthbearer." not in name}
    properties[f"{PREFIX}.sasl.server.callback.handler.class"] = UNSECURED
    properties[f"{PREFIX}.sasl.jaas.config"] = (
        f'{MODULE} required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="kafka";'
    )

    async def main() -> None:
        async with running_node(tmp_path, **properties) as node:
            options = {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginStringClaim_scope": "kafka"}
            now = time.time_ns() // 1_000_000
            await let_in(node, unsecured_token(options, now))
            client = await shaken(node)
            response = await shown(client, unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, now))
            assert response.auth_bytes == b'{"status":"insufficient_scope", "scope":"[kafka]"}'
            await refused(node, provider.token())

    run(main)
    assert "takes OAUTHBEARER tokens without a signature" in caplog.text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": None, "sasl.server.callback.handler.class": None}, "needs the address"),
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "no signature can be checked"),
        ({"sasl.server.callback.handler.class": UNSECURED}, "would not look at the keys"),
        ({"sasl.server.callback.handler.class": "com.example.Mine"}, "com.example.Mine is a Java class"),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, "com.example.Mine is a Java class"),
        ({"sasl.oauthbearer.expected.audience": None}, "expected.audience: is not set"),
        ({"sasl.oauthbearer.expected.issuer": None}, "expected.issuer: is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://127.0.0.1/"}, "no URL of https, http or file"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://user:secret@host/"}, "has a user in it"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/jwks.json"}, "cannot be read"),
        ({"sasl.jaas.config": f"{MODULE} required ssl.truststore.location=/nowhere;"}, "a quoted string|options are"),
        ({"sasl.jaas.config": f'{MODULE} required ssl.truststore.location="/nowhere";'}, "/nowhere"),
        ({"sasl.oauthbearer.client.credentials.client.secret": None}, "client.secret is not set"),
        ({"sasl.oauthbearer.token.endpoint.url": None}, "nobody to ask for a token"),
        ({"sasl.login.callback.handler.class": "com.example.Mine"}, "com.example.Mine is a Java class"),
    ],
)
def test_what_is_not_said_keeps_a_node_from_starting(
    provider: TokenProvider, tmp_path: Path, changes: dict[str, str | None], reason: str
) -> None:
    properties: dict[str, str | None] = {
        **listener(provider),
        **{f"{PREFIX}.{name}": value for name, value in changes.items()},
    }
    given = {name: value for name, value in properties.items() if value is not None}
    with pytest.raises(FatalError, match=reason) as caught:
        NodeSecurity(configuration(tmp_path, **given), RealEnv())
    assert "\n" not in str(caught.value) and "secret@" not in str(caught.value)


def test_what_is_not_checked_must_be_said_to_be_so(
    tmp_path: Path, provider: TokenProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(node: Node) -> None:
        await let_in(node, provider.token(aud=None, iss=None))

    changes = {f"{PREFIX}.sasl.oauthbearer.expected.{name}": "" for name in ("audience", "issuer")}
    changes |= {f"{PREFIX}.sasl.oauthbearer.allow.unverified.{name}": "true" for name in ("audience", "issuer")}
    talk(tmp_path, provider, test, **changes)
    assert caplog.text.count("takes OAUTHBEARER tokens for everything that their provider signs") == 2
