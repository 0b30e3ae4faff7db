"""Delegation tokens: made, shown, renewed and removed by Kafka's own tool, and Java's clients that log in with them.

kafka-python, aiokafka, kafkajs and librdkafka cannot log in with a token: SCRAM's extension is not theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from compat_tests.client_security import Security
from compat_tests.clients import skip_without
from compat_tests.java_tools.driver import Output, ToolDriver
from compat_tests.security.test_protocols import works
from compat_tests.security.world import World, feature, own_client
from kbroker.client.errors import AuthenticationFailed
from tests.patience import eventually

_ROW = re.compile(r"^(\S{22})\s+(\S{88})\s+(\S+)\s+(\S+)\s+\[(.*?)\]\s+(\S+)\s+(\S+)\s+(\S+)\s*$", re.MULTILINE)
"""TOKENID HMAC OWNER REQUESTER RENEWERS ISSUEDATE EXPIRYDATE MAXDATE."""


class Tokens:
    """The tool ``kafka-delegation-tokens``, as whoever logs in."""

    def __init__(self, world: World, directory: Path, address: str = "") -> None:
        self.world = world
        self._directory = directory
        self._address = address or world.servers.bootstrap("SASL_SSL")
        self._driver = ToolDriver(self._address)

    def close(self) -> None:
        """End the tool's process."""
        self._driver.close()

    def run(self, who: Security, *options: str, tool: str = "kafka-delegation-tokens") -> Output:
        """Run the tool, or another one, as someone."""
        file = self._directory / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in who.java_properties().items()))
        return self._driver.run(tool, "--bootstrap-server", self._address, "--command-config", str(file), *options)

    def create(self, who: Security, *options: str) -> tuple[str, ...]:
        """A new token: the columns of the tool's table."""
        told = self.run(who, "--create", "--max-life-time-period", "-1", *options)
        assert told.exit == 0, told
        (row,) = _ROW.findall(told.out)
        self.world.token_secrets.append(row[1])
        return tuple(row)

    def shown(self, who: Security, owner: str) -> list[tuple[str, ...]]:
        """The tokens of an owner or renewer that someone sees. Without one the tool asks for those of nobody."""
        told = self.run(who, "--describe", "--owner-principal", f"User:{owner}")
        assert told.exit == 0, told
        return _ROW.findall(told.out)


@pytest.fixture
def tokens(world: World, tmp_path: Path) -> Iterator[Tokens]:
    """The tool, at the node under test."""
    skip_without("java")
    made = Tokens(world, tmp_path)
    yield made
    made.close()


def logs_in_with(address: str, token: Security) -> bool:
    """Whether the node at `address` lets in kbroker's own client with a token."""
    try:
        with own_client(address, token) as client:
            client.any_broker(client.deadline())
    except AuthenticationFailed:
        return False
    return True


def _sees(tokens: Tokens, who: Security, expected: list[tuple[str, ...]]) -> bool:
    return [row[:2] for row in tokens.shown(who, "alice")] == [row[:2] for row in expected]


def holder(who: Security, token: tuple[str, ...], mechanism: str) -> Security:
    """The holder of a token, who comes the same way."""
    return replace(who, mechanism=mechanism, username=token[0], password=token[1], is_token=True)


@feature("java", "delegation tokens")
def test_kafkas_tool_makes_tokens_that_java_logs_in_with(tokens: Tokens) -> None:
    world = tokens.world
    alice, admin, bob = (world.servers.plain(name, "SASL_SSL") for name in ("alice", "admin", "bob"))
    token = tokens.create(alice, "--renewer-principal", "User:bob")
    assert token[2:5] == ("User:alice", "User:alice", "User:bob")
    for who in (alice, bob):
        eventually(partial(_sees, tokens, who, [token]))
    assert tokens.shown(bob, "bob") == tokens.shown(alice, "alice")
    assert tokens.shown(alice, "admin") == []
    assert "Total number of tokens : 0" in tokens.run(alice, "--describe").out
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = world.client("java", "SASL_SSL", holder(alice, token, mechanism))
        works(world, client)
        world.done_with(client)
    # It is alice, and not more than alice; nobody has another token of it.
    for what in ("--create --max-life-time-period -1", f"--renew --renew-time-period -1 --hmac {token[1]}"):
        told = tokens.run(holder(alice, token, "SCRAM-SHA-512"), *what.split())
        assert told.exit == 1
        assert "Delegation Token requests are not allowed" in told.out + told.err, told
    told = tokens.run(bob, "--renew", "--renew-time-period", "3600000", "--hmac", token[1])
    assert told.exit == 0 and "Completed renew operation. New expiry date" in told.out, told
    told = tokens.run(bob, "--create", "--max-life-time-period", "-1", "--owner-principal", "User:alice")
    assert told.exit == 1 and "Delegation Token authorization failed." in told.out + told.err, told
    right = ["--allow-principal", "User:bob", "--operation", "CreateTokens", "--user-principal", "User:alice"]
    assert tokens.run(admin, "--add", *right, tool="kafka-acls").exit == 0
    eventually(lambda: "CREATE_TOKENS" in tokens.run(admin, "--list", tool="kafka-acls").out)
    of_alice = tokens.create(bob, "--owner-principal", "User:alice")
    assert of_alice[2:4] == ("User:alice", "User:bob")
    for row in (token, of_alice):
        told = tokens.run(alice, "--expire", "--expiry-time-period", "-1", "--hmac", row[1])
        assert told.exit == 0 and "Completed expire operation." in told.out, told
    eventually(partial(_sees, tokens, admin, []))
    told = tokens.run(holder(alice, token, "SCRAM-SHA-512"), "--describe", "--owner-principal", "User:alice")
    assert told.exit == 1 and "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in told.out + told.err
    assert tokens.run(admin, "--remove", "--force", *right, tool="kafka-acls").exit == 0
