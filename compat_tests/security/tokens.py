"""The token provider of the tests, and the tokens that clients ask it for."""

from __future__ import annotations

import base64
import functools
import json
import urllib.parse
import urllib.request
import uuid
from typing import Any

from kbroker.testing.token_provider import TokenProvider
from tests.patience import SHORT

ELSEWHERE = "elsewhere"
"""A client whose tokens are meant for another service."""


class _Provider(TokenProvider):
    def token(self, subject: str = "alice", header: Any = None, **claims: Any) -> str:
        audience = ELSEWHERE if subject == ELSEWHERE else self.audience
        return super().token(subject, header, **{"aud": audience, **claims})


@functools.cache
def provider() -> TokenProvider:
    """The provider of tokens for all nodes and clients; it runs as long as this process."""
    secrets = {name: f"{name}-{uuid.uuid4().hex}" for name in ("alice", ELSEWHERE)}
    found = _Provider(clients=secrets)
    found.__enter__()
    return found


def jvm_option() -> str:
    """The option by which a Java program may ask the provider: it is told of the addresses when it starts.

    It stands in the commands that need it: any other JVM that found it in its environment would print a line about it.
    """
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider().jwks_url},{provider().token_url}"


def ask(url: str, client: str, secret: str) -> str:
    """A token, for clients that leave it to their program to get one."""
    credentials = base64.b64encode(f"{client}:{secret}".encode()).decode()
    form = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
    request = urllib.request.Request(url, form, {"Authorization": f"Basic {credentials}"})
    with urllib.request.urlopen(request, timeout=SHORT) as answer:
        return str(json.load(answer)["access_token"])


def kafka_python_tokens(url: str, client: str, secret: str) -> Any:
    """kafka-python's ``sasl_oauth_token_provider``."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return ask(url, client, secret)

    return Tokens()


def aiokafka_tokens(url: str, client: str, secret: str) -> Any:
    """aiokafka's ``sasl_oauth_token_provider``."""
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return ask(url, client, secret)

    return Tokens()
