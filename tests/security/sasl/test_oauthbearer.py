"""OAUTHBEARER's two sides, tokens without a signature, and a client's tokens over time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from kbroker.security.sasl.oauthbearer.compact import decode_json, encode_json, split_token
from kbroker.security.sasl.oauthbearer.http import ProviderError
from kbroker.security.sasl.oauthbearer.messages import (
    InitialResponse,
    OAuthBearerClient,
    OAuthBearerServer,
    initial_response,
    parse_initial_response,
)
from kbroker.security.sasl.oauthbearer.refresh import MIN_UNKNOWN_SECONDS, RefreshTimes
from kbroker.security.sasl.oauthbearer.retrieval import Refresh, Tokens
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused
from kbroker.security.sasl.oauthbearer.unsecured import unsecured_token, unsecured_validator

NOW_MS = 1_800_000_000_000


def judge(token: str) -> BearerToken:
    if token == "good":
        return BearerToken("alice", NOW_MS)
    raise TokenRefused("it is not good")


def answer(server: OAuthBearerServer, message: bytes) -> bytes:
    steps: Any = server.respond(message)
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    return bytes(ended.value.value)


# --- the two sides


def test_a_good_token() -> None:
    server, client = OAuthBearerServer(judge), OAuthBearerClient("good", {"traceId": "7"})
    assert client.first() == b"n,,\x01auth=Bearer good\x01traceId=7\x01\x01"
    assert answer(server, client.first()) == b"" and server.is_done
    assert client.respond(b"") == b"" and client.is_done
    assert (server.principal, server.expires_at_ms) == (KafkaPrincipal("User", "alice"), NOW_MS)
    assert server.extensions == {"traceId": "7"}
    with pytest.raises(SaslError):
        answer(server, client.first())


def test_a_bad_token_is_told_in_two_steps() -> None:
    server, client = OAuthBearerServer(judge), OAuthBearerClient("bad", {})
    challenge = answer(server, client.first())
    assert challenge == b'{"status":"invalid_token"}' and not server.is_done
    assert client.respond(challenge) == b"\x01" and not client.is_done
    for message in (b"\x01", initial_response("good", {})):
        with pytest.raises(SaslAuthenticationError, match=r'^\{"status":"invalid_token"\}$') as caught:
            answer(server, message)
        assert caught.value.detail == "it is not good"


@pytest.mark.parametrize("name", ["\ud800", "x" * 32768, "\u20ac" * 11000, ""])
def test_a_name_that_no_answer_can_tell(name: str) -> None:
    """JSON can name half a surrogate pair; strings of the protocol have 32,767 bytes at most."""
    for message in (b"n,,", b"n,a=alice,"):
        server = OAuthBearerServer(lambda _: BearerToken(name, NOW_MS))
        assert answer(server, message + b"\x01auth=Bearer x\x01\x01") == b'{"status":"invalid_token"}'
        assert not server.is_done


def test_somebody_else_is_not_to_be_acted_for() -> None:
    for header in ("n,a=alice,", "n,,"):
        server = OAuthBearerServer(judge)
        assert answer(server, f"{header}\x01auth=Bearer good\x01\x01".encode()) == b""
    with pytest.raises(SaslAuthenticationError, match=r"authorization id \(bob\)"):
        answer(OAuthBearerServer(judge), b"n,a=bob,\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a=x=2D,\x01auth=Bearer good\x01\x01",
        b"n,b=x,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x01key2=value\x01\x01",
        b"n,,\x01auth=Bearer good\x01key=\x01\x01",
        b"n,,\x01auth=Bearer good\x01key=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer good\x01key\x01\x01",
    ],
)
def test_what_is_no_first_message(message: bytes) -> None:
    with pytest.raises(SaslError) as caught:
        parse_initial_response(message)
    assert not isinstance(caught.value, SaslAuthenticationError) and "good" not in str(caught.value)


@given(
    st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True),
    st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda name: name != "auth"),
        st.from_regex(r"[\x21-\x7e \t\r\n]+", fullmatch=True),
    ),
)
def test_messages_are_read_as_they_were_written(token: str, extensions: dict[str, str]) -> None:
    assert parse_initial_response(initial_response(token, extensions)) == InitialResponse(token, "", extensions)


@given(st.binary(max_size=100) | st.text(alphabet="n,a=\x01ubthBerx ", max_size=60).map(str.encode))
def test_any_message_is_read_or_refused(message: bytes) -> None:
    try:
        parse_initial_response(message)
    except SaslError:
        pass


# --- tokens without a signature


def test_an_unsecured_token() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|a|b|",
        "unsecuredLoginNumberClaim_level": "7",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = unsecured_token(options, NOW_MS)
    assert decode_json(split_token(token).payload, "payload") == {
        "sub": "alice",
        "scope": ["a", "b", ""],
        "level": 7.0,
        "iat": NOW_MS / 1000,
        "exp": NOW_MS / 1000 + 60,
    }
    validate = unsecured_validator({"unsecuredValidatorRequiredScope": "a b"}, lambda: NOW_MS)
    judged = validate(token)
    assert isinstance(judged, BearerToken)
    assert (judged.principal_name, judged.expires_at_ms) == ("alice", NOW_MS + 60_000)
    assert judged.scope == frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("header", "claims", "signature", "reason"),
    [
        ({"alg": "HS256"}, {}, "", "algorithm none"),
        ({}, {}, "", "algorithm none"),
        ({"alg": "none"}, {}, "AA", "algorithm none"),
        ({"alg": "none"}, {"sub": None}, "", "sub is missing"),
        ({"alg": "none"}, {"exp": None}, "", "exp is missing"),
        ({"alg": "none"}, {"exp": 1}, "", "expired"),
        ({"alg": "none"}, {"exp": True}, "", "exp is no time"),
        ({"alg": "none"}, {"iat": NOW_MS}, "", "in the future"),
        ({"alg": "none"}, {"scope": 7}, "", "scope is neither"),
    ],
)
def test_an_unsecured_token_that_does_not_hold(
    header: dict[str, Any], claims: dict[str, Any], signature: str, reason: str
) -> None:
    held = {"sub": "alice", "exp": NOW_MS / 1000 + 60, **claims}
    held = {name: value for name, value in held.items() if value is not None}
    validate = unsecured_validator({}, lambda: NOW_MS)
    with pytest.raises(TokenRefused, match=reason):
        validate(f"{encode_json(header)}.{encode_json(held)}.{signature}")


# --- a client's tokens


class Source:
    """Tokens that last ten minutes, and how often they were asked for."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.count = self.asked = 0
        self.fails = False

    def get(self) -> str:
        self.asked += 1
        if self.fails:
            raise ProviderError("nobody answers")
        self.count += 1
        claims = {"sub": "alice", "iat": self.now, "exp": self.now + 600, "jti": str(self.count)}
        return f"{encode_json({'alg': 'RS256'})}.{encode_json(claims)}.AA"


def test_a_token_is_kept_and_renewed_before_it_ends() -> None:
    source = Source()
    tokens = Tokens(source.get, "sub", Refresh(0.8, 0.0, 60, 0), lambda: source.now)
    first = tokens.token()
    source.now += 479
    assert tokens.token() == first and source.count == 1
    source.now += 2
    assert tokens.token() != first and source.count == 2
    # A provider that is away costs nothing as long as the token holds, and no longer.
    second = tokens.token()
    source.now += 590
    source.fails = True
    assert tokens.token() == second and tokens.token() == second and source.asked == 3
    source.now += 10
    for _ in range(3):
        with pytest.raises(SaslError, match=r"^there is no token: nobody answers$"):
            tokens.token()
    assert source.asked == 4, "those who ask together do not wait for it one after the other"
    source.fails = False
    source.now += 2
    assert tokens.token() != second


def test_kafkas_rules_of_renewal() -> None:
    assert Refresh(0.8, 0.0, 60, 300).renew_at(0, 1000) == 700
    assert Refresh(0.5, 0.0, 900, 0).renew_at(0, 1000) == 900
    assert Refresh(0.8, 0.0, 60, 300).renew_at(0, 100) == 80, "neither fits into so short a time"
    assert 800 <= Refresh(0.8, 0.05, 0, 0).renew_at(0, 1000) <= 850


def test_times_of_questions() -> None:
    times = RefreshTimes(3600, 0.1, 1.0)
    waits = []
    for _ in range(6):
        times.failed(0)
        waits.append(times.next_at)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    times.succeeded(5)
    assert times.next_at == 3605
    assert times.may_ask_for_unknown(10) and not times.may_ask_for_unknown(10 + MIN_UNKNOWN_SECONDS - 1)
    assert times.may_ask_for_unknown(10 + MIN_UNKNOWN_SECONDS)
