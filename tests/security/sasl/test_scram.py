"""SCRAM against the conversations of its RFCs, and against itself with every message damaged."""

from __future__ import annotations

import base64

import pytest

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.jaas import JaasError
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from kbroker.security.sasl.scram import (
    CredentialForm,
    ScramAccount,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    UnknownUsers,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORD = "pä,=\\ß"


def server_of(mechanism: ScramMechanism, **users: ScramCredential) -> ScramServer:
    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        credential = None if is_token else users.get(name)
        return None if credential is None else ScramAccount(credential, KafkaPrincipal("User", name))

    return ScramServer(mechanism, lookup, UnknownUsers(mechanism))


def test_the_conversation_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    client_first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = f"r=rOprNGfwEbeRWgbNEkqO{server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    client_final = (
        f"c=biws,r=rOprNGfwEbeRWgbNEkqO{server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    server_final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

    client = ScramClient(SHA_256, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    account = ScramAccount(
        ScramCredential.from_password(SHA_256, "pencil", salt=salt), KafkaPrincipal("User", "user"), expires_at_ms=5
    )
    server = ScramServer(SHA_256, lambda name, is_token: account, UnknownUsers(SHA_256), lambda: server_nonce)
    assert client.first() == client_first
    assert server.respond(client_first) == server_first
    assert client.respond(server_first) == client_final
    assert not server.is_done
    assert server.respond(client_final) == server_final
    assert server.is_done and server.principal == account.principal and server.expires_at_ms == 5
    assert not client.is_done
    assert client.respond(server_final) == b""
    assert client.is_done


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c", "a=2Cb", "x y"])
def test_both_sides_agree(mechanism: ScramMechanism, user: str) -> None:
    server = server_of(mechanism, **{user: ScramCredential.from_password(mechanism, PASSWORD, iterations=5000)})
    client = ScramClient(mechanism, user, PASSWORD)
    final = server.respond(client.respond(server.respond(client.first())))
    assert client.respond(final) == b"" and client.is_done
    assert server.principal == KafkaPrincipal("User", user)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("alice ", PASSWORD)])
def test_a_wrong_password_and_an_unknown_user_look_the_same(
    mechanism: ScramMechanism, user: str, password: str
) -> None:
    server = server_of(mechanism, alice=ScramCredential.from_password(mechanism, PASSWORD))
    client = ScramClient(mechanism, user, password)
    challenge = server.respond(client.first())
    assert challenge.endswith(b",i=4096")
    proof = client.respond(challenge)
    with pytest.raises(SaslError, match="Invalid user credentials") as caught:
        server.respond(proof)
    assert not isinstance(caught.value, SaslAuthenticationError) and not server.is_done
    with pytest.raises(SaslError, match="is complete"):
        server.respond(proof)


def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    unknown = UnknownUsers(SHA_256)
    one, other = unknown.credential("bob"), unknown.credential("bob")
    assert one.salt == other.salt != unknown.credential("eve").salt
    assert len(one.salt) == len(ScramCredential.from_password(SHA_256, "x").salt)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_credentials_of_unknown_users_look_like_those_of_others(mechanism: ScramMechanism) -> None:
    kafkas = CredentialForm.of(b"1ofe0vi6wp0u3jbb7mcuz4bn3p", 8192)
    assert kafkas == (8192, 26, True)
    forms = {kafkas: 30, CredentialForm(16384, 100, False): 10}
    names = [f"nobody {number}" for number in range(400)]

    def node() -> UnknownUsers:
        return UnknownUsers(mechanism, lambda: forms, lambda: b"of the cluster")

    found = [node().credential(name) for name in names]
    seen = [CredentialForm.of(credential.salt, credential.iterations) for credential in found]
    assert set(seen) == set(forms)
    assert 240 < seen.count(kafkas) < 360
    other = [node().credential(name).salt for name in names]
    assert other == [credential.salt for credential in found], "on another node, or after a restart"
    assert len(set(other)) == len(names)
    forms[kafkas] += 1
    changed = [new.iterations != old.iterations for new, old in zip(map(node().credential, names), found, strict=True)]
    assert sum(changed) < 10
    assert UnknownUsers(mechanism, lambda: forms).credential("bob").salt != node().credential("bob").salt


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"\xff\xfe",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a c",
        b"n,,n=alice",
        b"n,,n=alice,r=abc,",
        b"n,,n=alice,r=abc,1=x",
        b"n,,n=alice,r=abc\n",
    ],
)
def test_a_first_message_of_another_form_is_refused(message: bytes) -> None:
    server = server_of(SHA_256, alice=ScramCredential.from_password(SHA_256, PASSWORD))
    with pytest.raises(SaslError, match="Invalid SCRAM client first message format"):
        server.respond(message)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"r=", b"r=x"),  # CVE-2024-56128
        (b"c=biws", b"c=eSws"),  # the channel binding flag of a client that could have bound one
        (b"c=biws", b"c=bi"),
        (b"c=biws,", b""),
        (b",p=", b",p=AAAA"),
        (b"p=", b"q="),
        (b",p=", b",x=y,p="),
    ],
)
def test_a_damaged_final_message_is_refused(old: bytes, new: bytes) -> None:
    server = server_of(SHA_256, alice=ScramCredential.from_password(SHA_256, PASSWORD))
    client = ScramClient(SHA_256, "alice", PASSWORD)
    final = client.respond(server.respond(client.first()))
    assert old in final
    with pytest.raises(SaslError):
        server.respond(final.replace(old, new))
    assert not server.is_done


def test_a_proof_is_of_use_once() -> None:
    credential = ScramCredential.from_password(SHA_256, PASSWORD)
    client = ScramClient(SHA_256, "alice", PASSWORD)
    first = client.first()
    final = client.respond(server_of(SHA_256, alice=credential).respond(first))
    another = server_of(SHA_256, alice=credential)
    another.respond(first)
    with pytest.raises(SaslError, match="nonce"):
        another.respond(final)


def test_another_identity_is_not_to_be_had() -> None:
    server = server_of(SHA_256, alice=ScramCredential.from_password(SHA_256, PASSWORD))
    with pytest.raises(SaslAuthenticationError, match="authorization id that is different"):
        server.respond(b"n,a=bob,n=alice,r=abc")
    assert server_of(SHA_256).respond(b"n,a=alice,n=alice,r=abc").startswith(b"r=abc")


def test_too_few_iterations_are_refused_by_both_sides() -> None:
    salted = SHA_256.salted_password(PASSWORD, b"salt", 4095)
    weak = ScramCredential.from_salted(SHA_256, salted, b"salt", 4095)
    client = ScramClient(SHA_256, "alice", PASSWORD, nonce=lambda: "abc")
    with pytest.raises(SaslError, match="less than the minimum"):
        server_of(SHA_256, alice=weak).respond(client.first())
    for iterations in ("0", "4095", "999999999"):
        with pytest.raises(SaslError, match="asks for"):
            ScramClient(SHA_256, "alice", PASSWORD, nonce=lambda: "abc").respond(
                f"r=abcdef,s=c2FsdA==,i={iterations}".encode()
            )


@pytest.mark.parametrize("challenge", [b"", b"r=other,s=c2FsdA==,i=4096", b"r=abc,s=c2FsdA==,i=4096", b"r=abcd,i=4096"])
def test_a_client_notices_a_server_that_is_none(challenge: bytes) -> None:
    with pytest.raises(SaslError):
        ScramClient(SHA_256, "alice", PASSWORD, nonce=lambda: "abc").respond(challenge)


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=other-error", b"", b"ok"])
def test_a_server_must_prove_that_it_knows_the_password(final: bytes) -> None:
    client = ScramClient(SHA_256, "alice", PASSWORD)
    client.respond(server_of(SHA_256, alice=ScramCredential.from_password(SHA_256, "x")).respond(client.first()))
    with pytest.raises(SaslError):
        client.respond(final)
    assert not client.is_done


def test_tokens_are_asked_for_as_such() -> None:
    asked: list[tuple[str, bool]] = []

    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        asked.append((name, is_token))
        return None

    line = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="tokenID" password="hmac" tokenauth="true";'
    )
    client = client_mechanism("SCRAM-SHA-512", line, {}).make("localhost")
    ScramServer(SHA_512, lookup, UnknownUsers(SHA_512)).respond(client.first())
    ScramServer(SHA_512, lookup, UnknownUsers(SHA_512)).respond(b"n,,n=alice,r=abc,x=y")
    assert asked == [("tokenID", True), ("alice", False)]


def test_no_text_shows_a_key() -> None:
    credential = ScramCredential(b"SALTSALT", b"STOREDKEY", b"SERVERKEY", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert PASSWORD not in repr(ScramClient(SHA_256, "alice", PASSWORD))


@pytest.mark.parametrize(
    ("mechanism", "module", "options", "reason"),
    [
        ("GSSAPI", "plain.Plain", 'username="a" password="hunter2"', "GSSAPI needs .*Krb5LoginModule"),
        ("PLAIN", "scram.Scram", 'username="a" password="hunter2"', "needs .*PlainLoginModule, not .*ScramLoginModule"),
        ("SCRAM-SHA-256", "plain.Plain", 'username="a" password="hunter2"', "needs .*ScramLoginModule"),
        ("PLAIN", "plain.Plain", 'password="hunter2"', "needs the option username"),
        ("PLAIN", "plain.Plain", 'username="hunter2"', "needs the option password"),
    ],
)
def test_a_line_that_does_not_fit_the_mechanism(mechanism: str, module: str, options: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        client_mechanism(
            mechanism, f"org.apache.kafka.common.security.{module}LoginModule required {options};", {}
        ).make("localhost")
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, JaasError)
