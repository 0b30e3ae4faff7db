"""Signed tokens that prove nothing, or not what they say: each is refused, whatever its claims look like."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from kbroker.security.sasl.oauthbearer.claims import ClaimRules, judge_claims
from kbroker.security.sasl.oauthbearer.compact import MAX_TOKEN, decode_json, encode_json, split_token
from kbroker.security.sasl.oauthbearer.keys import ALGORITHMS, CURVES, KeySet, UnknownKey, parse_key_set
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused

NOW = 1_800_000_000
RULES = ClaimRules(frozenset({"kbroker", "other"}), "https://issuer", 30)
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kbroker",
    "iat": NOW - 10,
    "nbf": NOW - 10,
    "exp": NOW + 60,
    "scope": "kafka",
}
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = {name: ECKey.generate_key(curve, {"kid": name}) for name, curve in CURVES.items()}
PUBLIC = {"keys": [RSA.as_dict(private=False), *(key.as_dict(private=False) for key in EC.values())]}
KEYS = parse_key_set(json.dumps(PUBLIC).encode())


def signed(claims: Any = None, key: Any = RSA, algorithm: str = "RS256", **header: Any) -> str:
    protected = {"alg": algorithm, "kid": key.kid, **header}
    payload = json.dumps(CLAIMS if claims is None else claims)
    return jws.serialize_compact(
        {name: value for name, value in protected.items() if value is not None}, payload, key, [algorithm]
    )


def judged(changes: dict[str, Any], rules: ClaimRules = RULES) -> BearerToken:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return judge_claims(claims, rules, NOW * 1000)


def test_each_algorithm_with_its_key() -> None:
    for algorithm in ALGORITHMS:
        key = EC.get(algorithm, RSA)
        assert KEYS.verified(signed(key=key, algorithm=algorithm)) == CLAIMS
        # Without a name it is found among those that fit.
        assert KEYS.verified(signed(key=key, algorithm=algorithm, kid=None)) == CLAIMS
        with pytest.raises(UnknownKey):
            KEYS.verified(signed(key=key, algorithm=algorithm, kid="unknown"))


def test_a_token_without_a_signature() -> None:
    for algorithm in ("none", "None", "NONE", "", None, ["RS256"], 256):
        token = f"{encode_json({'alg': algorithm, 'kid': 'rsa'})}.{encode_json(CLAIMS)}."
        with pytest.raises(TokenRefused, match="are to be signed by"):
            KEYS.verified(token)
    head, payload, signature = signed().split(".")
    with pytest.raises(TokenRefused, match="signature is wrong"):
        KEYS.verified(f"{head}.{payload}.")
    with pytest.raises(TokenRefused, match="signature is wrong"):
        KEYS.verified(f"{head}.{encode_json({**CLAIMS, 'sub': 'admin'})}.{signature}")


def test_the_public_key_as_a_shared_secret() -> None:
    """HS256 with what everybody can see: the best known attack."""
    for secret in (RSA.as_pem(private=False), json.dumps(PUBLIC).encode(), b""):
        start = f"{encode_json({'alg': 'HS256', 'kid': 'rsa'})}.{encode_json(CLAIMS)}"
        code = base64.urlsafe_b64encode(hmac.digest(secret, start.encode(), "sha256")).decode().rstrip("=")
        token = f"{start}.{code}"
        with pytest.raises(TokenRefused, match="are to be signed by"):
            KEYS.verified(token)
    # A provider that shows a shared secret has no key at all.
    with pytest.raises(ValueError, match="no key that can check"):
        parse_key_set(json.dumps({"keys": [OctKey.generate_key(256).as_dict()]}).encode())


def test_a_key_in_the_token_itself() -> None:
    mine = RSAKey.generate_key(2048, {"kid": "rsa"})
    for header in (
        {"jwk": mine.as_dict(private=False)},
        {"jku": "http://127.0.0.1:1/jwks"},
        {"x5u": "http://127.0.0.1:1/"},
    ):
        with pytest.raises(TokenRefused, match="signature is wrong"):
            KEYS.verified(signed(key=mine, **header))


def test_a_header_with_demands() -> None:
    head = {"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}
    with pytest.raises(TokenRefused, match="crit"):
        KEYS.verified(f"{encode_json(head)}.{encode_json(CLAIMS)}.AAAA")
    with pytest.raises(TokenRefused, match="kid is no string"):
        KEYS.verified(f"{encode_json({'alg': 'RS256', 'kid': ['rsa']})}.{encode_json(CLAIMS)}.AAAA")


@pytest.mark.filterwarnings("ignore:Key size")
def test_a_header_with_more_than_is_needed() -> None:
    """Providers put names of their own into headers, and chains of certificates."""
    registry = jws.JWSRegistry(algorithms=["RS256"], strict_check_header=False)
    registry.max_header_length = 4096
    for more in ({"pi.atm": "1", "nonce": "n"}, {"x5c": ["A" * 2000]}):
        header = {"alg": "RS256", "kid": RSA.kid, **more}
        assert KEYS.verified(jws.serialize_compact(header, json.dumps(CLAIMS), RSA, registry=registry)) == CLAIMS


def test_a_key_for_another_purpose_or_a_weak_one_checks_nothing() -> None:
    shown = RSA.as_dict(private=False)
    weak = {**RSAKey.generate_key(1024).as_dict(private=False), "kid": "weak"}
    useless = [
        {**shown, "use": "enc"},
        {**shown, "key_ops": ["encrypt"]},
        {**shown, "kid": 7},
        {**shown, "n": "!"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "RSA"},
        weak,
        "text",
        None,
    ]
    for entry in useless:
        with pytest.raises(ValueError, match="no key that can check"):
            parse_key_set(json.dumps({"keys": [entry]}).encode())
    of_ps256 = parse_key_set(json.dumps({"keys": [{**shown, "alg": "PS256"}]}).encode())
    assert of_ps256.verified(signed(algorithm="PS256")) == CLAIMS
    with pytest.raises(UnknownKey):
        of_ps256.verified(signed(algorithm="RS256"))
    # The private part of a key is not read, even where a provider shows it by mistake.
    assert (
        "d" not in parse_key_set(json.dumps({"keys": [RSA.as_dict(private=True)]}).encode())._keys[0].public.as_dict()
    )


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b"[" * 100_000, json.dumps({"keys": [{}] * 101}).encode()]
)
def test_what_is_no_key_set(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        parse_key_set(text)


def test_a_token_of_another_size_or_shape() -> None:
    for token, reason in (
        ("a" * (MAX_TOKEN + 1), "characters"),
        (f"{'a' * 5000}.a.a", "header is too long"),
        ("a.b", "three parts"),
        ("a.b.c.d", "three parts"),
        ("..", "three parts"),
        ("!.e30.", "base64url"),
        (f"{base64.urlsafe_b64encode(b'[' * 2000).decode().rstrip('=')}.e30.", "no JSON"),
        (f"{base64.urlsafe_b64encode(b'[]').decode().rstrip('=')}.e30.", "no JSON object"),
    ):
        with pytest.raises(TokenRefused, match=reason) as caught:
            KEYS.verified(token)
        assert token not in str(caught.value)
    twice = base64.urlsafe_b64encode(b'{"sub":"alice","sub":"admin"}').decode().rstrip("=")
    with pytest.raises(TokenRefused, match="no JSON"):
        decode_json(twice, "payload")


def test_claims_that_hold() -> None:
    token = judged({})
    assert token == BearerToken("alice", (NOW + 60) * 1000, frozenset({"kafka"}), CLAIMS)
    assert "alice" in repr(token) and "issuer" not in repr(token)
    assert judged({"aud": ["elsewhere", "other"]}).principal_name == "alice"
    assert judged({"nbf": None, "scope": None}).scope == frozenset()
    assert judged({"scope": ["b", " a "]}).scope == {"a", "b"}
    assert judged({"email": "a@b"}, RULES._replace(sub_claim="email")).principal_name == "a@b"
    # The clocks of provider and broker may differ by so much.
    assert judged({"exp": NOW - 29, "iat": NOW - 60, "nbf": None}).expires_at_ms == (NOW - 29) * 1000
    assert judged({"iat": NOW + 30, "nbf": NOW + 30}).principal_name == "alice"
    unchecked = ClaimRules(frozenset(), None)
    assert judged({"aud": 7, "iss": None}, unchecked).principal_name == "alice"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": None}, "iss is missing"),
        ({"iss": "https://issuer/"}, "another issuer"),
        ({"iss": ["https://issuer"]}, "iss is no string"),
        ({"iss": {"https://issuer": 1}}, "iss is no string"),
        ({"aud": None}, "aud is missing"),
        ({"aud": "kbroke"}, "no audience"),
        ({"aud": "kbroker,other"}, "no audience"),
        ({"aud": []}, "no audience"),
        ({"aud": {"kbroker": 1}}, "neither a string nor"),
        ({"aud": ["kbroker", 7]}, "neither a string nor"),
        ({"exp": None}, "exp is missing"),
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": str(NOW + 60)}, "exp is no number"),
        ({"exp": [NOW + 60]}, "exp is no number"),
        ({"exp": True}, "exp is no number"),
        ({"exp": 1e400}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": 10**4000}, "exp is no time"),
        ({"exp": -1}, "exp is no time"),
        ({"iat": None}, "iat is missing"),
        ({"iat": NOW + 31}, "in the future"),
        ({"iat": "now"}, "iat is no number"),
        ({"nbf": NOW + 31}, "not hold yet"),
        ({"nbf": False}, "nbf is no number"),
        ({"iat": NOW + 20, "exp": NOW + 10, "nbf": None}, "before it begins"),
        ({"sub": None}, "no claim sub"),
        ({"sub": "  "}, "an empty one"),
        ({"sub": 7}, "sub is no string"),
        ({"sub": ["alice"]}, "sub is no string"),
        ({"jti": 7}, "jti is no string"),
        ({"scope": ["a", "a"]}, "twice"),
        ({"scope": [7]}, "empty or no string"),
        ({"scope": " "}, "empty or no string"),
    ],
)
def test_claims_that_do_not_hold(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        judged(changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*CLAIMS, "jti"]), JSON))
def test_any_claims_are_judged_or_refused(changes: dict[str, Any]) -> None:
    """No value of any type is more than refused, and who gets in has a name, the issuer and an audience."""
    try:
        token = judge_claims({**CLAIMS, **changes}, RULES, NOW * 1000)
    except TokenRefused:
        return
    held = {**CLAIMS, **changes}
    assert held["iss"] == RULES.issuer and held["sub"].strip() == token.principal_name
    assert RULES.audiences & set([held["aud"]] if isinstance(held["aud"], str) else held["aud"])
    assert token.expires_at_ms is not None and token.expires_at_ms > (NOW - 30) * 1000


@given(
    st.text(max_size=200) | st.binary(max_size=150).map(lambda data: f"{base64.urlsafe_b64encode(data).decode()}.e30.")
)
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        KEYS.verified(text)


@given(st.integers(0, 10_000), st.integers(1, 63))
def test_a_token_with_another_character_is_refused(place: int, by: int) -> None:
    token = TOKEN
    at = place % len(token)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    if token[at] == ".":
        changed = token[:at] + token[at + 1 :]
    else:
        changed = token[:at] + alphabet[(alphabet.index(token[at]) + by) % 64] + token[at + 1 :]
    try:
        claims = KEYS.verified(changed)
    except TokenRefused:
        return
    # Only bits of base64 that stand for nothing may differ.
    assert claims == CLAIMS and split_token(changed)[:2] == split_token(token)[:2]


TOKEN = signed()


def test_many_keys_cost_little() -> None:
    """A token that names no key is checked by a few of them, however many there are."""
    keys = KeySet(list(KEYS._keys[:1]) * 100)
    forged = f"{encode_json({'alg': 'RS256'})}.{encode_json(CLAIMS)}.{'A' * 342}"
    assert len(keys.of_token(None, "RS256")) == 4
    began = time.process_time()
    with pytest.raises(TokenRefused):
        keys.verified(forged)
    assert time.process_time() - began < 1
