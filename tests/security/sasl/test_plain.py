"""PLAIN: the server's judgement, in the words of Kafka's PlainSaslServer, which a client is told."""

from __future__ import annotations

import pytest

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from kbroker.security.sasl.plain import PasswordTable, PlainClient, PlainServer, plain_users

USERS = PasswordTable(plain_users({"username": "broker", "user_alice": "secret", "user_ü": "pä=,", "user_": "nobody"}))


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret", "\0ü\0pä=,".encode()])
def test_whoever_knows_the_password_is_let_in(token: bytes) -> None:
    server = PlainServer(USERS.check)
    assert not server.is_done
    assert server.respond(token) == b""
    assert server.is_done and server.principal == KafkaPrincipal("User", token.decode().split("\0")[1])
    with pytest.raises(SaslError):
        server.respond(token)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0Secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0broker\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\xff\0secret", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_others_are_told_why(token: bytes, text: str) -> None:
    server = PlainServer(USERS.check)
    with pytest.raises(SaslAuthenticationError) as caught:
        server.respond(token)
    assert str(caught.value) == text
    assert not server.is_done


def test_a_client_says_it_all_at_once() -> None:
    client = PlainClient("alice", "secret")
    assert not client.is_done
    assert client.first() == b"\0alice\0secret"
    assert client.is_done and client.respond(b"") == b""
    with pytest.raises(SaslError):
        client.respond(b"more")
    assert "secret" not in repr(client) + repr(vars(USERS))
