"""The answers of a listener with OAUTHBEARER to the bytes of a client, the same on both brokers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.security.world import World
from kbroker.testing.token_provider import TokenProvider
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.patience import LONG

INVALID = b'{"status":"invalid_token"}'
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
Token = Callable[[TokenProvider], str]


class Raw:
    """A connection to the listener TOKENS that has chosen its mechanism."""

    def __init__(self, world: World) -> None:
        host, _, port = world.servers.bootstrap("TOKENS").partition(":")
        self._socket = socket.create_connection((host, int(port)), LONG)
        self._talk = Conversation("raw")
        assert self._ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _ask(self, request: Any, version: int) -> Any:
        self._socket.sendall(b"".join(self._talk.send(request, version)))
        return self._talk.receive(memoryview(self._read(int.from_bytes(self._read(4), "big"))))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received, "the connection has ended"
            data += received
        return data

    def show(self, message: bytes) -> tuple[int, str, bytes]:
        """Error, its text and the bytes of the answer to a message."""
        answer = self._ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        return answer.error_code, answer.error_message or "", bytes(answer.auth_bytes)


def first(token: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


LET_IN = {
    "a token": lambda provider: first(provider.token()),
    "an audience of several": lambda provider: first(provider.token(aud=["elsewhere", provider.audience])),
    "somebody's own name": lambda provider: first(provider.token("alice"), "n,a=alice,"),
    "extensions": lambda provider: first(provider.token(), more="traceId=7\x01other=a b\x01"),
    "a scheme in capitals": lambda provider: first(provider.token()).replace(b"Bearer", b"BEARER"),
    "scopes": lambda provider: first(provider.token(scope=["a", "b"])),
    "just over, within the skew": lambda provider: first(provider.token(iat=1, exp=time.time() - 5)),
}
BAD_TOKENS: dict[str, Token] = {
    "another issuer": lambda provider: provider.token(iss="https://elsewhere"),
    "no issuer": lambda provider: provider.token(iss=None),
    "issuers": lambda provider: provider.token(iss=[provider.issuer]),
    "another audience": lambda provider: provider.token(aud="elsewhere"),
    "no audience": lambda provider: provider.token(aud=None),
    "no end": lambda provider: provider.token(exp=None),
    "over": lambda provider: provider.token(iat=1, exp=time.time() - 40),
    "an end that is text": lambda provider: provider.token(exp=str(time.time() + 60)),
    "no beginning": lambda provider: provider.token(iat=None),
    "not yet": lambda provider: provider.token(nbf=time.time() + 600),
    "nobody": lambda provider: provider.token(sub=None),
    "a blank name": lambda provider: provider.token(sub=" "),
    "a number for a name": lambda provider: provider.token(sub=7),
    "a scope twice": lambda provider: provider.token(scope=["a", "a"]),
    "an empty scope": lambda provider: provider.token(scope=""),
    "an unknown key": lambda provider: provider.token(header={"kid": "unknown"}),
    "a changed signature": lambda provider: provider.token()[:-6] + "AAAAAA",
    "no signature": lambda provider: provider.token().rpartition(".")[0] + ".",
    "no JWT": lambda provider: "abc",
}
BAD_MESSAGES = {
    "nothing": b"",
    "a confirmation of nothing": b"\x01",
    "no token": b"n,,\x01\x01",
    "no end": b"n,,\x01auth=Bearer abc\x01",
    "channel binding": b"y,,\x01auth=Bearer abc\x01\x01",
    "another scheme": b"n,,\x01auth=Basic abc\x01\x01",
    "a name with a digit": b"n,,\x01auth=Bearer abc\x01a1=b\x01\x01",
    "a value that is empty": b"n,,\x01auth=Bearer abc\x01a=\x01\x01",
    "no UTF-8": b"n,,\x01auth=Bearer \xff\x01\x01",
}


@pytest.mark.parametrize("case", LET_IN)
def test_let_in(world: World, case: str) -> None:
    with Raw(world) as raw:
        assert raw.show(LET_IN[case](world.servers.provider)) == (0, "", b"")


@pytest.mark.parametrize("case", BAD_TOKENS)
def test_token_is_refused_in_two_steps(world: World, case: str) -> None:
    with Raw(world) as raw:
        assert raw.show(first(BAD_TOKENS[case](world.servers.provider))) == (0, "", INVALID)
        assert raw.show(b"\x01") == (58, INVALID.decode(), b"")


@pytest.mark.parametrize("case", BAD_MESSAGES)
def test_message_is_refused(world: World, case: str) -> None:
    if case == "another scheme" and "apache" in world.servers.kinds:
        pytest.skip("Apache Kafka 4.3.1 and 4.4.0 close the connection, with an internal error")
    with Raw(world) as raw:
        assert raw.show(BAD_MESSAGES[case]) == (58, GENERIC, b"")


def test_nobody_acts_for_somebody_else(world: World) -> None:
    with Raw(world) as raw:
        error, text, _ = raw.show(first(world.servers.provider.token("alice"), "n,a=bob,"))
        assert error == 58
        assert text == (
            "Authentication failed: Client requested an authorization id (bob) that is different from the token's"
            " principal name (alice)"
        )
