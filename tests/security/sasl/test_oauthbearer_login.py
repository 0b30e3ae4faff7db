"""A client's login at a token provider: questions and answers, tokens in files, and providers that misbehave."""

from __future__ import annotations

import functools
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.properties import ClientProperties
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer import http as provider_http
from kbroker.security.sasl.oauthbearer import retrieval
from kbroker.security.sasl.oauthbearer.compact import decode_json, split_token
from kbroker.security.sasl.oauthbearer.http import Limits, ProviderError, parse_url
from kbroker.security.sasl.oauthbearer.messages import parse_initial_response
from kbroker.security.sasl.oauthbearer.retrieval import Backoff, Credentials, from_endpoint, token_of_answer
from kbroker.testing.token_provider import Answer, TokenProvider
from tests.patience import LONG, LONG_MS

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

ask = functools.partial(provider_http.ask, limits=Limits(LONG, LONG))


def login(**more: str) -> Any:
    options = more.pop("options", "")
    more = {"sasl.login.connect.timeout.ms": str(LONG_MS), "sasl.login.read.timeout.ms": str(LONG_MS)} | more
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
        ({"sasl.login.callback.handler.class": "com.example.Mine", "sasl.mechanism": "OAUTHBEARER"}, "", "Java class"),
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


def test_a_provider_is_asked_again_where_that_may_help(
    provider: TokenProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Answer] = [(503, {}, b""), (500, {}, b""), (200, {}, b'{"access_token": " abc "}')]
    provider.answers["/token"] = lambda: answers.pop(0)
    url = parse_url(provider.token_url)

    def post(headers: Any, form: bytes) -> bytes:
        return ask(url, headers=headers, form=form)

    get = from_endpoint(post, Credentials("alice", "alice-secret"), Backoff(0.001, 600.0))
    assert get() == "abc" and not answers
    answers[:] = [(400, {}, json.dumps({"error": "x"}).encode())]
    with pytest.raises(ProviderError, match="status 400"):
        get()
    provider.answers["/token"] = lambda: (503, {}, b"")
    provider.requests.clear()
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
    monkeypatch.setattr(retrieval, "time", clock)
    with pytest.raises(ProviderError, match="status 503"):
        from_endpoint(post, Credentials("alice", "alice-secret"), Backoff(1.0, 10.0))()
    assert waits == [1.0, 2.0, 4.0], "another 8 seconds would be too long"
    assert len(provider.requests) == 4


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
