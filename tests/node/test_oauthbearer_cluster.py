"""Three nodes that log in to one another by OAUTHBEARER, brokers and controllers, with tokens that end soon."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, PublicFormat

from kbroker.config.security.sasl import JWT_BEARER
from kbroker.errors import ErrorCode
from kbroker.testing.token_provider import TokenProvider
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import Client, batch, produce_request, run
from tests.node.quorum_harness import LISTENER, three_nodes
from tests.patience import LONG
from tests.secret_forms import tokens_in

PATIENT = {"broker.session.timeout.ms": "600000", "controller.quorum.fetch.timeout.ms": "600000"}
"""By the wall clock nobody is to be missed on a machine that is busy. No limit of the test is that long: a connection
that only such a time-out would mend is found.
"""
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def properties(provider: TokenProvider) -> dict[str, str]:
    found = {
        "listener.security.protocol.map": f"PLAINTEXT:SASL_PLAINTEXT,{LISTENER}:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.audience": "kbroker",
        "sasl.oauthbearer.expected.issuer": provider.issuer,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": "broker",
        "sasl.oauthbearer.client.credentials.client.secret": "broker-secret",
        "connection.failed.authentication.delay.ms": "1",
    }
    for listener in ("plaintext", LISTENER.lower()):
        found[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = f"{MODULE} required;"
    return found


async def logged_in(client: Client, token: str) -> Client:
    await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    response = await client.ask(SaslAuthenticateRequest(auth_bytes=message))
    assert (response.error_code, response.auth_bytes) == (0, b"")
    return client


def test_nodes_prove_themselves_to_the_provider_by_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "node.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"key-secret")))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    async def test() -> None:
        with TokenProvider(public_keys={"broker": public}, algorithm="ES256") as provider:
            given = properties(provider) | {
                "sasl.oauthbearer.jwt.retriever.class": JWT_BEARER,
                "sasl.oauthbearer.assertion.algorithm": "ES256",
                "sasl.oauthbearer.assertion.private.key.file": str(path),
                "sasl.oauthbearer.assertion.private.key.passphrase": "key-secret",
                "sasl.oauthbearer.assertion.claim.iss": "broker",
                "sasl.oauthbearer.assertion.claim.aud": provider.token_url,
            }
            del given["sasl.oauthbearer.client.credentials.client.secret"]
            async with three_nodes(tmp_path, properties=given) as cluster:
                admin = await logged_in(await cluster.node(1).connect(), provider.token("alice"))
                topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
                created = await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
                assert created.topics[0].error_code == 0
                await cluster.topics_everywhere(["t"])

    with caplog.at_level(logging.DEBUG, "kbroker"):
        run(test)
    assert "key-secret" not in caplog.text and not tokens_in(caplog.text)


def test_nodes_log_in_to_one_another_by_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with TokenProvider(clients={"broker": "broker-secret"}, lifetime=2.0, algorithm="ES256") as provider:
            async with three_nodes(tmp_path, properties=properties(provider) | PATIENT) as cluster:
                token = provider.token("alice", exp=1 << 32)
                admin = await logged_in(await cluster.node(1).connect(), token)
                topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
                created = await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
                # A request is forwarded once more if the node's own token ends while the controller answers.
                assert created.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                await cluster.topics_everywhere(["t"])
                asked = provider.requests.count("/token")
                epochs = {node.metadata.describe_quorum().leader_epoch for node in cluster.nodes.values()}
                # Replication goes on over the ends of the nodes' tokens, and so does that of the metadata.
                with trio.fail_after(LONG):
                    while (count := provider.requests.count("/token") - asked) < 6:
                        name = f"after-{count}"
                        if name not in cluster.newest_image().topics.by_name:
                            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
                            created = await admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
                            assert created.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                            await cluster.topics_everywhere([name])
                        leader = cluster.newest_image().topics.by_name["t"].partitions[0].leader
                        client = await logged_in(await cluster.node(leader).connect(), token)
                        response = await client.ask(produce_request("t", batch(b"x"), timeout_ms=60_000), 12)
                        assert response.responses[0].partition_responses[0].error_code == 0
                        await client.stream.aclose()
                assert {node.metadata.describe_quorum().leader_epoch for node in cluster.nodes.values()} == epochs
                assert len(epochs) == 1, "and under one controller"

    with caplog.at_level(logging.DEBUG, "kbroker"):
        run(test, patient=False)  # tokens end by the wall clock
    assert "broker-secret" not in caplog.text and not tokens_in(caplog.text)
    assert "internal error" not in caplog.text
