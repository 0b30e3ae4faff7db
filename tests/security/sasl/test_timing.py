"""The time of a refusal tells nothing: not whether a user exists, nor how near a password or a nonce is."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.oauthbearer.claims import ClaimRules, judge_claims
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerServer, initial_response
from kbroker.security.sasl.plain import PasswordTable, PlainServer
from kbroker.security.sasl.scram import (
    CredentialForm,
    ScramAccount,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    UnknownUsers,
)
from tests.security.sasl.equal_times import Attempt, take_the_same_time


def plain(user: str, password: str) -> Attempt:
    table = PasswordTable({"alice": "the-right-password", "bobby": "another-password-"})
    token = f"\0{user}\0{password}".encode()

    def attempt() -> Callable[[], object]:
        server = PlainServer(table.check)
        return lambda: server.respond(token)

    return attempt


@pytest.mark.parametrize(
    ("user", "password"),
    [("nosuc", "the-wrong-password"), ("alice", "the-right-passworX"), ("alice", "Xhe-right-password")],
)
def test_plain(user: str, password: str) -> None:
    assert take_the_same_time(plain("alice", "the-wrong-password"), plain(user, password))


def scram_server(mechanism: ScramMechanism) -> ScramServer:
    credential = _CREDENTIALS[mechanism]
    forms = Counter({CredentialForm.of(credential.salt, credential.iterations): 3})
    unknown = UnknownUsers(mechanism, lambda: forms, lambda: b"of the cluster")

    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        return ScramAccount(credential, KafkaPrincipal("User", name)) if name == "alice" else None

    return ScramServer(mechanism, lookup, unknown)


_CREDENTIALS = {mechanism: ScramCredential.from_password(mechanism, "secret") for mechanism in ScramMechanism}


def first_message(mechanism: ScramMechanism, user: str) -> Attempt:
    def attempt() -> Callable[[], object]:
        server, client = scram_server(mechanism), ScramClient(mechanism, user, "wrong")
        token = client.first()
        return lambda: server.respond(token)

    return attempt


def final_message(mechanism: ScramMechanism, user: str, change_nonce: Callable[[str], str] = str) -> Attempt:
    def attempt() -> Callable[[], object]:
        server, client = scram_server(mechanism), ScramClient(mechanism, user, "wrong")
        challenge = server.respond(client.first()).decode()
        nonce = challenge.split(",")[0][2:]
        proof = _PROOFS[mechanism]
        token = f"c=biws,r={change_nonce(nonce)},p={proof}".encode()
        return lambda: server.respond(token)

    return attempt


_PROOFS = {ScramMechanism.SCRAM_SHA_256: "A" * 43 + "=", ScramMechanism.SCRAM_SHA_512: "A" * 86 + "=="}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_of_a_user_who_exists_and_of_one_who_does_not(mechanism: ScramMechanism) -> None:
    assert take_the_same_time(first_message(mechanism, "alice"), first_message(mechanism, "nosuc"))
    assert take_the_same_time(final_message(mechanism, "alice"), final_message(mechanism, "nosuc"))


def test_a_nonce_that_is_wrong_in_its_first_or_its_last_letter() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    begins = final_message(mechanism, "alice", lambda nonce: f"!{nonce[1:]}")
    ends = final_message(mechanism, "alice", lambda nonce: f"{nonce[:-1]}!")
    assert take_the_same_time(begins, ends)


# --- OAUTHBEARER: no node knows who there is, so nothing but a signature could be guessed at

NOW = 1_800_000_000
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kbroker", "iat": NOW, "exp": NOW + 60}
RULES = ClaimRules(frozenset({"kbroker"}), "https://issuer")


def bearer(change: Callable[[bytes], bytes], **claims: str) -> Attempt:
    """A token of these claims, with another signature than its own."""
    pytest.importorskip("joserfc")
    from joserfc import jws
    from joserfc.jwk import RSAKey

    from kbroker.security.sasl.oauthbearer.keys import parse_key_set

    global _RSA
    _RSA = _RSA or RSAKey.generate_key(2048, {"kid": "rsa"})
    keys = parse_key_set(json.dumps({"keys": [_RSA.as_dict(private=False)]}).encode())
    token = jws.serialize_compact({"alg": "RS256", "kid": "rsa"}, json.dumps({**CLAIMS, **claims}), _RSA, ["RS256"])
    content, _, signature = token.rpartition(".")
    changed = change(base64.urlsafe_b64decode(signature + "=="))
    message = initial_response(f"{content}.{base64.urlsafe_b64encode(changed).rstrip(b'=').decode()}", {})

    def attempt() -> Callable[[], object]:
        server = OAuthBearerServer(lambda token: judge_claims(keys.verified(token), RULES, NOW * 1000))
        return lambda: steps_of(server.respond(message))

    return attempt


_RSA: Any = None


def steps_of(answer: Any) -> bytes:
    """The answer of a mechanism that waits for nobody."""
    try:
        answer.send(None)
    except StopIteration as end:
        assert end.value, "the token is refused"
        return bytes(end.value)
    raise AssertionError("it waits")


def first_byte(signature: bytes) -> bytes:
    return bytes([signature[0] ^ 1]) + signature[1:]


def last_byte(signature: bytes) -> bytes:
    return signature[:-1] + bytes([signature[-1] ^ 1])


def test_a_token_of_one_user_and_of_another() -> None:
    assert take_the_same_time(bearer(last_byte), bearer(last_byte, sub="nosuc"))


def test_a_signature_that_is_wrong_in_its_first_or_its_last_byte() -> None:
    assert take_the_same_time(bearer(first_byte), bearer(last_byte))


def test_a_difference_is_found() -> None:
    """Or the others would prove nothing."""
    known = first_message(ScramMechanism.SCRAM_SHA_256, "alice")

    def leaking() -> Callable[[], object]:
        step = known()

        def longer() -> object:
            UnknownUsers(ScramMechanism.SCRAM_SHA_256).credential("nosuc")
            return step()

        return longer

    assert not take_the_same_time(known, leaking)
