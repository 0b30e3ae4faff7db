"""A node's secrets, and those that clients send, are searched for in all that it says: logs, describes, tracebacks."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from kbroker.handlers import scram_credentials
from kbroker.node.security.sasl.threads import LoginThreads
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer.messages import initial_response
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.wire.messages import configs as wire
from kbroker.wire.messages import scram_credentials as alter
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest
from tests.node.node_harness import Client, running_node
from tests.node.tls_harness import NODE, properties
from tests.secret_forms import forms, shown_in

pytest.importorskip("cryptography")

BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BROKER, ALICE, WRONG, BOB, CHANGED, STORE, TOKENS, KEY, CLIENT, PHRASE, TICKET = (
    f"{name}-is-secret-{index * 7919}"
    for index, name in enumerate(
        ("broker", "alice", "wrong", "bob", "changed", "store", "tokens", "key", "client", "phrase", "ticket")
    )
)
SALTED = ScramMechanism.SCRAM_SHA_256.salted_password(BOB, b"some salt", 4096)
CREDENTIAL = ScramMechanism.SCRAM_SHA_256.hmac(SALTED, b"Server Key")
PRIVATE_KEY = NODE.key_pem().splitlines()[1]


SECRETS = {
    text
    for secret in (BROKER, ALICE, WRONG, BOB, CHANGED, STORE, TOKENS, KEY, PRIVATE_KEY, CLIENT, PHRASE, TICKET)
    for text in forms(secret.encode())
} | {text for secret in (SALTED, CREDENTIAL) for text in forms(secret)}


def line(user: str, password: str) -> str:
    return f'{MODULE} required username="{user}" password="{password}" user_broker="{BROKER}" user_alice="{ALICE}";'


PROPERTIES = properties() | {
    "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": line("broker", BROKER),
    "sasl.jaas.config": line("broker", BROKER),
    "listener.name.other.ssl.truststore.password": STORE,
    "ssl.key.password": KEY,
    "ssl.keystore.key": NODE.key_pem(KEY),
    "delegation.token.secret.key": TOKENS,
    "connection.failed.authentication.delay.ms": "0",
    "an.unknown.property.password": STORE,
}
del PROPERTIES["security.inter.broker.protocol"]


async def log_in(node: Any, token: bytes, mechanism: str = "PLAIN") -> tuple[Client, Any]:
    client = Client(await trio.open_tcp_stream(*node.broker.ports["CLIENTS"]))
    await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    return client, await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def changes(**configs: str) -> wire.IncrementalAlterConfigsRequest:
    """Of the node's own properties; ``ssl__key__password`` stands for ``ssl.key.password``."""
    altered = [
        wire.IncrementalAlterableConfig(name=name.replace("__", "."), config_operation=0, value=value)
        for name, value in configs.items()
    ]
    broker = wire.IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=altered)
    return wire.IncrementalAlterConfigsRequest(resources=[broker])


def test_no_token_and_no_ticket_is_in_what_a_node_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of OAUTHBEARER and GSSAPI: right ones and wrong ones, and where a mistake of the code has one at hand."""
    pytest.importorskip("joserfc")
    from joserfc import jws
    from joserfc.jwk import ECKey

    from kbroker.node.security.sasl import gssapi, oauthbearer, setup
    from kbroker.security.sasl.conversation import OfferedMechanism
    from kbroker.security.sasl.kerberos.exchange import GssapiServer
    from kbroker.security.sasl.kerberos.names import ShortNamer

    class Context:
        """Of GSS, whose library has a mistake. `test_gssapi` talks to that of the system."""

        is_established, initiator = False, "alice"
        wrap = unwrap = bytes

        def step(self, token: bytes) -> bytes:
            raise RuntimeError("a mistake in the library") if token == TICKET.encode() else SaslError("it is no ticket")

    class Gssapi:
        task = None

        def __init__(self, properties: Any) -> None:
            self._threads = LoginThreads()

        def offered(self, services: Any) -> OfferedMechanism:
            namer = ShortNamer(["DEFAULT"], "REALM")
            return OfferedMechanism(lambda: gssapi._InThreads(GssapiServer(Context, namer), self._threads), 0)

    key = ECKey.generate_key("P-256", {"kid": "ec"})
    (tmp_path / "keys").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    claims = {"sub": "alice", "iss": "issuer", "aud": "kbroker", "iat": 1, "exp": 1 << 32}

    def token(header: dict[str, str] | None = None, **changes: Any) -> str:
        protected = {"alg": "ES256", "kid": "ec", **(header or {})}
        return jws.serialize_compact(protected, json.dumps({**claims, **changes}), key, ["ES256"])

    right = token()
    wrong = [
        token(exp=2),
        token(aud=WRONG),
        token(iss="other"),
        token(sub=""),
        token(header={"kid": "other"}),
        right[:-4] + "AAAA",
        right.replace(".", "!"),
        f"{WRONG}.{WRONG}.{WRONG}",
        WRONG,
    ]
    given = PROPERTIES | {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER,GSSAPI",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys").as_uri(),
        "sasl.oauthbearer.expected.issuer": "issuer",
        "sasl.oauthbearer.expected.audience": "kbroker",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT,
        "sasl.oauthbearer.assertion.private.key.passphrase": PHRASE,
        "listener.name.clients.oauthbearer.sasl.jaas.config": f'{BEARER} required clientSecret="{CLIENT}";',
    }
    said = io.StringIO()

    async def test() -> None:
        async with running_node(tmp_path, None, **given) as node:
            client, answer = await log_in(node, initial_response(right, {}), "OAUTHBEARER")
            assert answer.error_code == 0
            for each in wrong:
                stranger, answer = await log_in(node, initial_response(each, {}), "OAUTHBEARER")
                if not answer.error_code:
                    assert b"invalid" in answer.auth_bytes, answer
                    said.write(f"{answer}\n")
                    answer = await stranger.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
                assert answer.error_code
                said.write(f"{answer}\n")
            for garbage in (WRONG.encode(), TICKET.encode()[1:]):
                _, answer = await log_in(node, garbage, "GSSAPI")
                assert answer.error_code
                said.write(f"{answer}\n")
            for kind in (4, 8):
                resource = wire.DescribeConfigsResource(resource_type=kind, resource_name="1")
                request = wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
                said.write(f"{await client.ask(request)}\n")

            def mistake(*_: Any, **__: Any) -> None:
                raise RuntimeError("a mistake in the code")

            monkeypatch.setattr(oauthbearer, "judge_claims", mistake)
            for message, mechanism in ((initial_response(right, {}), "OAUTHBEARER"), (TICKET.encode(), "GSSAPI")):
                with pytest.raises(EOFError):
                    await log_in(node, message, mechanism)
            said.write(repr(node.broker.config) + repr(node.broker.config.values) + repr(node.broker.services))

    monkeypatch.setitem(cast(dict[str, Any], setup.MECHANISMS), "GSSAPI", Gssapi)
    with caplog.at_level(logging.DEBUG):
        trio.run(test)
    text = caplog.text + said.getvalue()
    assert "a mistake in the code" in text and "a mistake in the library" in text and "Traceback" in text
    assert "signature is wrong" in text and "it is no ticket" in text and "claim aud" in text
    shown = SECRETS | {part for each in (right, *wrong[:6]) for part in each.split(".")[1:] if part != "AAAA"}
    assert shown_in(text, shown) == []


def test_no_secret_is_in_what_a_node_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()

    async def test() -> None:
        async with running_node(tmp_path, None, **PROPERTIES) as node:
            client, answer = await log_in(node, f"\0alice\0{ALICE}".encode())
            assert answer.error_code == 0
            for token in (f"\0alice\0{WRONG}", f"\0{WRONG}\0{WRONG}", f"{WRONG}\0alice\0{ALICE}", ALICE):
                assert (await log_in(node, token.encode()))[1].error_code
            assert (await log_in(node, f"n,,n=alice,r={WRONG}".encode(), "SCRAM-SHA-256"))[1].error_code == 0

            upsertion = alter.ScramCredentialUpsertion(
                name="bob", mechanism=1, iterations=4096, salt=b"some salt", salted_password=SALTED
            )
            request = alter.AlterUserScramCredentialsRequest(upsertions=[upsertion])
            for message in (
                request,
                changes(ssl__key__password=CHANGED),
                changes(listener__name__clients__ssl__key__password=CHANGED),
                changes(listener__name__clients__plain__sasl__jaas__config=line("broker", CHANGED)),
                changes(listener__name__clients__ssl__keystore__password=CHANGED, num__io__threads=CHANGED[:0]),
                DescribeUserScramCredentialsRequest(users=None),
                *(
                    wire.DescribeConfigsRequest(
                        resources=[wire.DescribeConfigsResource(resource_type=kind, resource_name="1")],
                        include_synonyms=True,
                        include_documentation=True,
                    )
                    for kind in (4, 8)
                ),
            ):
                said.write(f"{message}\n{await client.ask(message)}\n")

            def mistake(*_: Any, **__: Any) -> None:
                raise RuntimeError(f"a mistake in the code, with {request} at hand")

            monkeypatch.setattr(scram_credentials, "alter_scram_credentials", mistake)
            said.write(repr(await client.ask(request)))
            said.write(repr(node.broker.config) + repr(node.broker.config.values) + repr(node.broker.services))

    with caplog.at_level(logging.DEBUG):
        trio.run(test)
    assert "a mistake in the code" in caplog.text and "Traceback" in caplog.text
    text = caplog.text + said.getvalue()
    assert "name='bob'" in text and "listener.name.clients.plain.sasl.jaas.config" in text
    assert shown_in(text, SECRETS) == []
