"""Stock clients log in by OAUTHBEARER: with tokens that they get themselves, and with those of a program."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.testing import RunningBroker, running_broker
from kbroker.testing.token_provider import TokenProvider
from tests.patience import LONG
from tests.secret_forms import tokens_in

pytest.importorskip("joserfc")

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PREFIX = "listener.name.clients.oauthbearer"


@pytest.fixture(scope="module")
def provider() -> Iterator[TokenProvider]:
    with TokenProvider(clients={"alice": "alice-secret", "broker": "broker-secret"}, algorithm="ES256") as found:
        yield found


@pytest.fixture(scope="module")
def node(provider: TokenProvider) -> Iterator[RunningBroker]:
    properties = {
        "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
        f"{PREFIX}.sasl.jaas.config": f"{MODULE} required;",
        f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        f"{PREFIX}.sasl.oauthbearer.expected.audience": "kbroker",
        f"{PREFIX}.sasl.oauthbearer.expected.issuer": provider.issuer,
        f"{PREFIX}.sasl.oauthbearer.token.endpoint.url": provider.token_url,
        f"{PREFIX}.sasl.oauthbearer.client.credentials.client.id": "broker",
        f"{PREFIX}.sasl.oauthbearer.client.credentials.client.secret": "broker-secret",
    }
    logger = logging.getLogger("kbroker")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    with running_broker(properties) as running:
        yield running
        logger.setLevel(level)
        text = "\n".join(record.getMessage() for record in running.logs)
        assert len(tokens_in(provider.token())) == 2, "it would be found"
        assert "-secret" not in text and not tokens_in(text)


def confluent(node: RunningBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
        **more,
    }


def test_confluent_kafka_asks_the_provider(node: RunningBroker, provider: TokenProvider) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    secret = {"sasl.oauthbearer.client.id": "alice", "sasl.oauthbearer.client.secret": "alice-secret"}
    oidc = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": provider.token_url}
    before = provider.requests.count("/token")
    producer = confluent_kafka.Producer(confluent(node, **oidc, **secret))
    producer.produce("oidc", b"hello")
    assert producer.flush(LONG) == 0
    assert provider.requests.count("/token") == before + 1


@pytest.mark.parametrize("is_good", [True, False])
def test_confluent_kafka_with_a_token_of_the_program(
    node: RunningBroker, provider: TokenProvider, is_good: bool
) -> None:
    """It goes on over the end of a token.

    With tokens that are so short it authenticates anew twice within a second at times, which brokers refuse (as Apache
    Kafka), and then connects again.
    """
    confluent_kafka = pytest.importorskip("confluent_kafka")
    given: list[str] = []
    ends_of: list[float] = []
    errors: list[str] = []

    def failed(error: Any) -> None:
        errors.append(error.str())

    def token(_: str) -> tuple[str, float]:
        ends = time.time() + (3600 if given else 3.0)
        ends_of.append(ends)
        given.append(provider.token("alice", exp=ends, aud="kbroker" if is_good else "elsewhere"))
        return given[-1], ends

    more = {"oauth_cb": token, "error_cb": failed}
    producer = confluent_kafka.Producer(confluent(node, **more))
    if not is_good:
        deadline = time.monotonic() + LONG
        while not any("invalid_token" in error for error in errors) and time.monotonic() < deadline:
            producer.poll(0.05)
        assert any("invalid_token" in error for error in errors), errors
        return
    deadline = time.monotonic() + LONG
    while len(given) < 2 or time.time() < ends_of[0] + 0.2:
        assert time.monotonic() < deadline, "no second token is asked for"
        producer.produce("callback", b"hello")
        assert producer.flush(LONG) == 0
        producer.poll(0.05)


def _kafka_python_tokens(provider: TokenProvider, **claims: Any) -> Any:
    oauth: Any = pytest.importorskip("kafka.net.sasl.oauth")

    class Tokens(oauth.AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token("alice", **claims)

    return Tokens()


def test_kafka_python(node: RunningBroker, provider: TokenProvider) -> None:
    kafka = pytest.importorskip("kafka")
    options: dict[str, Any] = {
        "bootstrap_servers": node.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = kafka.KafkaProducer(**options, sasl_oauth_token_provider=_kafka_python_tokens(provider))
    assert producer.send("kafka-python", b"hello").get(LONG).offset == 0
    producer.close()
    wrong = _kafka_python_tokens(provider, iss="https://elsewhere")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**options, sasl_oauth_token_provider=wrong, bootstrap_timeout_ms=3000)


def test_aiokafka(node: RunningBroker, provider: TokenProvider) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    abc: Any = pytest.importorskip("aiokafka.abc")

    class Tokens(abc.AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self, **claims: Any) -> None:
            self._claims = claims

        async def token(self) -> str:
            return provider.token("alice", **self._claims)

    async def send(tokens: Tokens, patience_ms: int) -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=node.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=tokens,
            request_timeout_ms=patience_ms,
        )
        try:
            await producer.start()
            return int((await producer.send_and_wait("aiokafka", b"hello")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(send(Tokens(), 120_000)) == 0
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(send(Tokens(exp=1), 3000))


def test_the_commands(
    node: RunningBroker, provider: TokenProvider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kbroker.tools.cli import main

    path = tmp_path / "client.properties"

    def topics(**more: str) -> int:
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULE} required;",
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.client.credentials.client.id": "alice",
            "sasl.oauthbearer.client.credentials.client.secret": "alice-secret",
            **more,
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return main(["topic", "list", "-b", node.bootstrap_servers, "--command-config", str(path)])

    assert topics() == 0
    token = tmp_path / "token"
    token.write_text(provider.token("bob"))
    assert topics(**{"sasl.oauthbearer.token.endpoint.url": token.as_uri()}) == 0
    capsys.readouterr()
    token.write_text(provider.token("bob", aud="elsewhere"))
    assert topics(**{"sasl.oauthbearer.token.endpoint.url": token.as_uri()}) == 1
    assert 'refuses the login: {"status":"invalid_token"}' in capsys.readouterr().err
    assert topics(**{"sasl.oauthbearer.client.credentials.client.secret": "wrong-secret"}) == 1
    told = capsys.readouterr().err
    assert "there is no token" in told and "status 401" in told and "wrong-secret" not in told
