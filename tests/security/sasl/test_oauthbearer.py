"""OAUTHBEARER's two sides, tokens without a signature, and a client's tokens over time."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.properties import ClientProperties
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.errors import SaslAuthenticationError, SaslError
from kbroker.security.sasl.oauthbearer import http as provider_http
from kbroker.security.sasl.oauthbearer.client import OAuthBearerClient
from kbroker.security.sasl.oauthbearer.compact import decode_json, encode_json, split_token
from kbroker.security.sasl.oauthbearer.http import Limits, ProviderError, ask, parse_url
from kbroker.security.sasl.oauthbearer.messages import InitialResponse, initial_response, parse_initial_response
from kbroker.security.sasl.oauthbearer.refresh import MIN_UNKNOWN_SECONDS, RefreshTimes
from kbroker.security.sasl.oauthbearer.retrieval import (
    Backoff,
    Credentials,
    Refresh,
    Tokens,
    from_endpoint,
    token_of_answer,
)
from kbroker.security.sasl.oauthbearer.server import OAuthBearerServer
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused
from kbroker.security.sasl.oauthbearer.unsecured import unsecured_token, unsecured_validator
from kbroker.testing.token_provider import Answer, TokenProvider

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
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
    assert (judged.principal_name, judged.expires_at_ms, judged.scope) == ("alice", NOW_MS + 60_000, {"a", "b"})


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


def login(**more: str) -> Any:
    options = more.pop("options", "")
    properties = ClientProperties({name.replace("_", "."): value for name, value in more.items()})
    return client_mechanism("OAUTHBEARER", f"{MODULE} required {options};", properties)


def test_client_credentials(provider: TokenProvider) -> None:
    by_properties = login(
        **{
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.client.credentials.client.id": "a b:c",
            "sasl.oauthbearer.client.credentials.client.secret": "s%:ü",
            "sasl.oauthbearer.scope": "kafka more",
            "sasl.oauthbearer.header.urlencode": "true",
        }
    )
    assert by_properties.may_block
    parsed = parse_initial_response(by_properties.make("localhost").first())
    claims = decode_json(split_token(parsed.token).payload, "payload")
    assert (claims["sub"], claims["scope"]) == ("a b:c", "kafka more")
    assert parse_initial_response(by_properties.make("localhost").first()).token == parsed.token
    assert provider.requests == ["/token"]
    by_jaas = login(
        options='clientId="alice" clientSecret="alice-secret" scope="s" extension_traceId="7"',
        **{"sasl.oauthbearer.token.endpoint.url": provider.token_url},
    )
    parsed = parse_initial_response(by_jaas.make("localhost").first())
    assert decode_json(split_token(parsed.token).payload, "payload")["sub"] == "alice"
    assert parsed.extensions == {"traceId": "7"}
    wrong = login(
        options='clientId="alice" clientSecret="wrong-secret"',
        **{"sasl.oauthbearer.token.endpoint.url": provider.token_url},
    )
    with pytest.raises(SaslError, match="answers with status 401") as caught:
        wrong.make("localhost")
    assert "wrong-secret" not in str(caught.value)
    assert "alice-secret" not in repr(Credentials("alice", "alice-secret"))


def test_a_token_in_a_file(tmp_path: Path, provider: TokenProvider) -> None:
    path = tmp_path / "token"
    with pytest.raises(SaslError, match="cannot be read: No such file"):
        login(**{"sasl.oauthbearer.token.endpoint.url": path.as_uri()}).make("localhost")
    made = login(**{"sasl.oauthbearer.token.endpoint.url": path.as_uri()})
    token = provider.token()
    path.write_text(f"{token}\n")
    assert parse_initial_response(made.make("localhost").first()).token == token
    path.write_text("no token")
    with pytest.raises(SaslError, match="three parts"):
        login(**{"sasl.oauthbearer.token.endpoint.url": path.as_uri()}).make("localhost")


@pytest.mark.parametrize(
    ("properties", "options", "reason"),
    [
        ({}, "", "nobody to ask"),
        ({}, 'unsecuredLoginExtension_a="b"', "nobody to ask"),
        ({}, 'unsecuredLoginLifetimeSeconds="1"', "StringClaim_sub"),
        ({}, 'unsecuredLoginStringClaim_exp="1"', "'exp' claim"),
        ({}, 'unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_n="secret"', "must be a number"),
        (
            {"sasl.login.callback.handler.class": "com.example.Mine", "sasl.mechanism": "OAUTHBEARER"},
            "",
            "Java class",
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "http://h/"}, 'unsecuredLoginStringClaim_sub="a"', "do not go with"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://h/"}, "", "client.id is not set"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://h/"}, 'clientId="a"', "client.secret is not set"),
        ({"sasl.oauthbearer.token.endpoint.url": "h"}, "", "no URL"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://h/"}, 'extension_auth="secret"', "name auth is invalid"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://h/"}, 'ssl.nonsense="secret"', "options are|no option"),
    ],
)
def test_a_login_that_makes_no_sense(properties: dict[str, str], options: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        login(options=options, **properties)
    assert "secret" not in str(caught.value).replace("client.secret", "")


# --- providers that are not what they should be


@pytest.fixture(scope="module")
def running() -> Iterator[TokenProvider]:
    secrets = {"alice": "alice-secret", "a b:c": "s%:ü"}
    with TokenProvider(clients=secrets, algorithm="ES256") as found:
        yield found


@pytest.fixture
def provider(running: TokenProvider) -> TokenProvider:
    running.requests.clear()
    running.answers.clear()
    return running


def test_a_redirect_is_not_followed(provider: TokenProvider) -> None:
    for status in (301, 302, 303, 307, 308):
        provider.answers["/jwks"] = lambda status=status: (status, {"Location": provider.token_url}, b"")  # type: ignore[misc]
        with pytest.raises(ProviderError, match=f"status {status}") as caught:
            ask(parse_url(provider.jwks_url))
        assert caught.value.is_final
    assert set(provider.requests) == {"/jwks"}


def test_a_huge_answer_is_not_read(provider: TokenProvider) -> None:
    provider.answers["/jwks"] = lambda: (200, {}, bytes(provider_http.MAX_BODY + 1))
    with pytest.raises(ProviderError, match="more than"):
        ask(parse_url(provider.jwks_url))
    provider.answers["/jwks"] = lambda: (200, {"Content-Length": "2000000000"}, b"{}")
    with pytest.raises(ProviderError, match=r"finish|in time|IncompleteRead"):
        ask(parse_url(provider.jwks_url), limits=Limits(1, 0.3))


def test_a_query_is_not_shown(provider: TokenProvider) -> None:
    with pytest.raises(ProviderError, match="status 404") as caught:
        ask(parse_url(f"{provider.issuer}/nothing?key=secret"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"])
def test_a_provider_that_never_ends_its_answer(greeting: bytes) -> None:
    """However slowly it goes on: each of its bytes comes in time, and the whole of it never does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(greeting)
                    while not ended.wait(0.02):
                        connection.sendall(b"x" if not greeting or greeting.endswith(b"9\r\n\r\n") else b"x: y\r\n")
                        if greeting.endswith(b"9\r\n\r\n"):
                            ended.wait(10)
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(ProviderError, match="no answer in time"):
                ask(parse_url(f"http://127.0.0.1:{server.getsockname()[1]}/"), limits=Limits(1, 0.3))
        finally:
            ended.set()
            thread.join()


def test_a_provider_that_is_not_there_or_has_no_tls(provider: TokenProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ProviderError, match="refused"):
        ask(parse_url(f"http://127.0.0.1:{port}/"))
    with pytest.raises(ProviderError):
        ask(parse_url(provider.jwks_url.replace("http:", "https:")))


def test_a_provider_with_tls_must_be_trusted(tmp_path: Path) -> None:
    """By the options of the line of JAAS; without them the machine decides, which does not know this authority."""
    from kbroker.security.tls.authority import Authority

    authority = Authority.create()
    (tmp_path / "ca.pem").write_text(authority.certificate_pem)
    with TokenProvider(clients={"alice": "alice-secret"}, algorithm="ES256") as secure:
        for host, trust, refusal in (
            ("127.0.0.1", True, ""),
            ("127.0.0.1", False, "its certificate is not accepted: "),
            ("elsewhere.example", True, "its certificate is not accepted: IP address mismatch"),
        ):
            (tmp_path / "node.pem").write_text(authority.issue("CN=provider", hosts=[host]).pem())
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "node.pem")
            with tls_server(secure, context) as url:
                options = f'ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path / "ca.pem"}"' if trust else ""
                made = login(
                    options=f'clientId="alice" clientSecret="alice-secret" {options}',
                    **{"sasl.oauthbearer.token.endpoint.url": url, "sasl.login.retry.backoff.max.ms": "1"},
                )
                if not refusal:
                    assert parse_initial_response(made.make("localhost").first()).token
                    continue
                with pytest.raises(SaslError, match=refusal):
                    made.make("localhost")


@contextmanager
def tls_server(provider: TokenProvider, context: ssl.SSLContext) -> Iterator[str]:
    """A provider behind TLS: one connection after the other."""
    plain = ("127.0.0.1", parse_url(provider.token_url).port)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    raw, _ = server.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(raw, server_side=True) as inner, socket.create_connection(plain) as outer:
                        request = b""
                        while not request.endswith(b"grant_type=client_credentials"):
                            part = inner.recv(65536)
                            if not part:
                                raise ConnectionResetError
                            request += part
                        outer.sendall(request)
                        while data := outer.recv(65536):
                            inner.sendall(data)
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.getsockname()[1]}/token"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_provider_is_asked_again_where_that_may_help(provider: TokenProvider) -> None:
    answers: list[Answer] = [(503, {}, b""), (500, {}, b""), (200, {}, b'{"access_token": " abc "}')]
    provider.answers["/token"] = lambda: answers.pop(0)
    url = parse_url(provider.token_url)

    def post(headers: Any, form: bytes) -> bytes:
        return ask(url, headers=headers, form=form)

    get = from_endpoint(post, Credentials("alice", "alice-secret"), Backoff(0.001, 5.0))
    assert get() == "abc" and not answers
    answers[:] = [(400, {}, json.dumps({"error": "x"}).encode())]
    with pytest.raises(ProviderError, match="status 400"):
        get()
    provider.answers["/token"] = lambda: (503, {}, b"")
    began = time.monotonic()
    with pytest.raises(ProviderError, match="status 503"):
        from_endpoint(post, Credentials("alice", "alice-secret"), Backoff(0.001, 0.05))()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": " "}', b"[" * 100_000])
def test_an_answer_without_a_token(body: bytes) -> None:
    with pytest.raises(ProviderError):
        token_of_answer(body)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jwks",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://u@h/",
        "http://h:x/",
        "http://h/a b",
        "file://h/x",
        "file:x",
    ],
)
def test_what_is_no_url(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL"):
        parse_url(text)


def test_urls() -> None:
    assert parse_url("https://idp.example/keys?x=1") == ("https", "idp.example", 443, "/keys?x=1")
    assert str(parse_url("http://[::1]:80")) == "http://[::1]:80/"
    assert parse_url("file:///a%20b").target == "/a b"
    assert parse_url("http://idp.example/").is_exposed and not parse_url("http://localhost/").is_exposed
