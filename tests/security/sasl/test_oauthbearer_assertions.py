"""A client that proves itself to its token provider by an assertion: made by a key of its own, or read from a file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("joserfc")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from joserfc import jws
from joserfc.jwk import RSAKey

from kbroker.client.properties import ClientProperties
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer.assertion import Times, assertions
from kbroker.security.sasl.oauthbearer.compact import decode_json, split_token
from kbroker.security.sasl.oauthbearer.messages import parse_initial_response
from kbroker.testing.token_provider import TokenProvider
from tests.secret_forms import tokens_in

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
PASSPHRASE = "of-the-key"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def public(key: Any) -> str:
    pem: bytes = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


@pytest.fixture(scope="module")
def provider() -> Iterator[TokenProvider]:
    keys = {"of-rsa": public(RSA_KEY), "of-ec": public(EC_KEY)}
    with TokenProvider(clients={"alice": "secret"}, public_keys=keys, algorithm="ES256") as found:
        yield found


@pytest.fixture
def files(tmp_path: Path) -> Path:
    plain, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption(PASSPHRASE.encode())
    for name, key, encryption in (("rsa", RSA_KEY, plain), ("ec", EC_KEY, plain), ("locked", RSA_KEY, locked)):
        (tmp_path / f"{name}.pem").write_bytes(key.private_bytes(PEM, PKCS8, encryption))
    return tmp_path


def properties(provider: TokenProvider, **more: Any) -> dict[str, str]:
    """``claim__iss`` stands for ``sasl.oauthbearer.assertion.claim.iss``."""
    return {
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.assertion.claim.aud": provider.issuer,
        **{f"sasl.oauthbearer.assertion.{name.replace('__', '.')}": str(value) for name, value in more.items()},
    }


def subject(given: dict[str, str]) -> str:
    """The subject of the token that a client with these properties gets."""
    made = client_mechanism("OAUTHBEARER", f"{MODULE} required;", ClientProperties(given))
    assert made.may_block
    token = parse_initial_response(made.make("localhost").first()).token
    return str(decode_json(split_token(token).payload, "payload")["sub"])


@pytest.mark.parametrize("retriever", [None, BEARER])
@pytest.mark.parametrize(
    ("client", "key", "more"),
    [
        ("of-rsa", "rsa", {}),
        ("of-ec", "ec", {"algorithm": "ES256"}),
        ("of-ec", "ec", {"algorithm": "es256", "claim__jti__include": "true"}),
        ("of-rsa", "locked", {"private__key__passphrase": PASSPHRASE}),
    ],
)
def test_a_key_buys_a_token(
    provider: TokenProvider, files: Path, retriever: str | None, client: str, key: str, more: dict[str, str]
) -> None:
    given = properties(provider, private__key__file=files / f"{key}.pem", claim__iss=client, claim__sub=client, **more)
    if retriever is not None:
        given["sasl.oauthbearer.jwt.retriever.class"] = retriever
    assert subject(given) == client


@pytest.mark.parametrize("retriever", [None, BEARER])
def test_an_assertion_made_elsewhere_is_read_each_time(
    provider: TokenProvider, tmp_path: Path, retriever: str | None
) -> None:
    path = tmp_path / "assertion"
    given = properties(provider, file=path)
    if retriever is not None:
        given["sasl.oauthbearer.jwt.retriever.class"] = retriever
    with pytest.raises(SaslError, match="cannot be read"):
        subject(given)
    now = time.time()
    claims = {"iss": "of-rsa", "aud": provider.token_url, "nbf": now - 1, "exp": now + 60}
    key = RSAKey.import_key((RSA_KEY.private_bytes(PEM, PKCS8, serialization.NoEncryption())).decode())
    path.write_text(jws.serialize_compact({"alg": "RS256"}, json.dumps(claims), key, ["RS256"]) + "\n")
    assert subject(given) == "of-rsa"
    path.write_text("no assertion")
    with pytest.raises(SaslError, match="holds no assertion"):
        subject(given)


def test_claims_come_from_properties_then_a_file_then_the_clock(tmp_path: Path, files: Path) -> None:
    template = tmp_path / "template"
    template.write_text(
        '{"header": {"kid": "7", "alg": "none"}, "payload": {"aud": ["a", "b"], "exp": 1, "team": "x"}}'
    )
    given = ClientProperties(
        {
            f"sasl.oauthbearer.assertion.{name}": value
            for name, value in {
                "private.key.file": str(files / "rsa.pem"),
                "template.file": str(template),
                "claim.iss": "me",
                "claim.sub": "sub",
                "claim.aud": "another",
                "claim.exp.seconds": "100",
                "claim.nbf.seconds": "7",
            }.items()
        }
    )
    parts = split_token(assertions(given, lambda: 1000.9)())
    assert decode_json(parts.header, "header") == {"kid": "7", "alg": "RS256", "typ": "JWT"}
    assert decode_json(parts.payload, "payload") == {
        "iss": "me",
        "sub": "sub",
        "aud": ["a", "b"],
        "team": "x",
        "iat": 1000,
        "exp": 1100,
        "nbf": 993,
    }
    one, other = (Times(1, 1, True).claims(5)["jti"] for _ in range(2))
    assert one != other


@pytest.mark.parametrize(
    ("key", "more", "said"),
    [
        ("locked", {}, "no private key that can be read"),
        ("locked", {"private__key__passphrase": "wrong-secret"}, "no private key that can be read"),
        ("ec", {}, "no key for RS256"),
        ("rsa", {"algorithm": "ES256"}, "no key for ES256"),
        ("none", {}, "cannot be read: No such file"),
        ("rsa", {"claim__iss": "somebody-else"}, "status 401"),
        ("rsa", {"claim__aud": "http://another"}, "status 401"),
        ("rsa", {"claim__exp__seconds": "0"}, "status 401"),
        ("rsa", {"template__file": "/dev/null"}, "is no JSON"),
    ],
)
def test_what_goes_wrong_is_told_at_once_and_tells_no_secret(
    provider: TokenProvider, files: Path, key: str, more: dict[str, str], said: str
) -> None:
    given = properties(provider, **{"private__key__file": files / f"{key}.pem", "claim__iss": "of-rsa", **more})
    provider.requests.clear()
    with pytest.raises(SaslError, match=said) as caught:
        subject(given)
    assert len(provider.requests) == said.startswith("status"), "another try would not help"
    assert "wrong-secret" not in str(caught.value) and not tokens_in(str(caught.value))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sasl.oauthbearer.jwt.retriever.class": BEARER}, "there is no assertion"),
        ({"sasl.oauthbearer.assertion.claim.iss": "me"}, "there is no assertion"),
        (
            {"sasl.oauthbearer.jwt.retriever.class": BEARER, "sasl.oauthbearer.token.endpoint.url": "file:///token"},
            "nobody there takes an assertion",
        ),
    ],
)
def test_a_login_without_assertion_is_refused_before_it_is_tried(
    provider: TokenProvider, more: dict[str, str], said: str
) -> None:
    given = {"sasl.oauthbearer.token.endpoint.url": provider.token_url, **more}
    with pytest.raises(ValueError, match=said):
        client_mechanism("OAUTHBEARER", f"{MODULE} required;", ClientProperties(given))
