"""A listener with GSSAPI, and a KDC of its own: by raw frames, and by a hostile client's."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.errors import FatalError
from kbroker.node.security.security import NodeSecurity
from kbroker.runtime.env import RealEnv
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.kerberos.exchange import GssapiServer
from kbroker.security.sasl.kerberos.names import ShortNamer
from kbroker.security.sasl.mechanism import SaslError
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.kdc import Kdc, missing_program, running_kdc
from tests.node.node_harness import Client, Node, configuration, running_node
from tests.node.test_sasl_hostile import FRAMES, LONGEST_SECONDS, MOST_GROWTH, damaged, resident_bytes
from tests.security.sasl.equal_times import Attempt, take_the_same_time

pytest.importorskip("gssapi", reason="the extra kbroker[gssapi] is not installed")
pytestmark = pytest.mark.skipif(missing_program() is not None, reason=f"there is no KDC here: {missing_program()}")

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SETTINGS = {
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.ticket.renew.window.factor": 0.8,
    "sasl.kerberos.ticket.renew.jitter": 0.05,
    "sasl.kerberos.min.time.before.relogin": 60000,
    "sasl.kerberos.kinit.cmd": "kinit",
}


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        kdc.add("kafka/localhost", "kafka/127.0.0.1", "other/localhost", "alice", "bob")
        kdc.keytab("kafka", "kafka/localhost", "kafka/127.0.0.1")
        kdc.keytab("clients", "alice", "bob")
        before = dict(os.environ)
        os.environ.update(kdc.environment)
        yield kdc
        os.environ.clear()
        os.environ.update(before)


def line(kdc: Kdc, keytab: str, principal: str, more: str = "") -> str:
    path = kdc.directory / f"{keytab}.keytab"
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}"{more};'


def properties(kdc: Kdc, **more: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plaintext.gssapi.sasl.jaas.config": line(kdc, "kafka", "kafka/localhost"),
        "sasl.kerberos.service.name": "kafka",
        "connection.failed.authentication.delay.ms": "0",
        **more,
    }


@asynccontextmanager
async def kerberos_node(kdc: Kdc, path: Path, **more: str) -> AsyncIterator[Node]:
    async with running_node(path, **properties(kdc, **more)) as node:
        yield node


def side(kdc: Kdc, user: str = "alice", service: str = "kafka", host: str = "localhost") -> Any:
    settings = {**SETTINGS, "sasl.kerberos.service.name": service}
    return client_mechanism("GSSAPI", line(kdc, "clients", user), settings).make(host)


async def handshake(node: Node, version: int = 1) -> Client:
    client = await node.connect()
    assert (await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version)).error_code == 0
    return client


async def send(client: Client, token: bytes) -> Any:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


async def test_who_has_a_ticket_is_let_in(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kbroker"):
        async with kerberos_node(kdc, tmp_path) as node:
            client = await let_in(kdc, node)
            assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers


async def refused(node: Node, token: bytes, *more: bytes) -> str:
    """The text by which the last of these tokens is refused, and the connection's end."""
    client = await handshake(node)
    for each in (token, *more)[:-1]:
        assert (await send(client, each)).error_code == 0
    answer = await send(client, (token, *more)[-1])
    assert answer.error_code == E.SASL_AUTHENTICATION_FAILED and answer.auth_bytes == b""
    assert await client.closed()
    return str(answer.error_message)


TOLD = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


async def test_a_hostile_client_is_told_nothing(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage and other services' tickets, at each step; the node goes on."""
    with caplog.at_level(logging.DEBUG, "kbroker"):
        async with kerberos_node(kdc, tmp_path) as node:
            token = side(kdc).first()
            garbage = [
                b"",
                b"\0",
                b"\x60",
                bytes(4096),
                token[:-1],
                token[:20],
                token[::-1],
                b"\x60\x84\xff\xff\xff\xff",
            ]
            garbage += [token[:at] + bytes([token[at] ^ 0x55]) + token[at + 1 :] for at in (0, 5, 30, len(token) // 2)]
            garbage += [token + bytes(100), token[:40] + bytes(500_000)]
            for each in garbage:
                assert await refused(node, each) == TOLD, each[:40]
            # A ticket for another service, whose key the node does not have.
            assert await refused(node, side(kdc, service="other").first()) == TOLD
            for late in (b"", b"x", bytes(500_000), token):
                alice = side(kdc)
                client = await handshake(node)
                answer = await send(client, alice.first())
                offer = await send(client, alice.respond(answer.auth_bytes))
                assert offer.error_code == 0 and len(offer.auth_bytes) > 4
                assert (await send(client, late)).error_code == E.SASL_AUTHENTICATION_FAILED
            await let_in(kdc, node)
    assert "Traceback" not in caplog.text and "Kerberos: " in caplog.text


async def let_in(kdc: Kdc, node: Node, user: str = "alice") -> Client:
    client, alice = await handshake(node), side(kdc, user)
    token = alice.first()
    while not alice.is_done:
        token = alice.respond((await send(client, token)).auth_bytes)
    last = await send(client, token)
    assert (last.error_code, last.auth_bytes, last.session_lifetime_ms) == (0, b"", 0)
    return client


def test_tickets_with_flipped_bits_take_the_same_time_wherever_they_are_wrong(kdc: Kdc) -> None:
    """And for whoever the ticket is: the node knows no users, and a ticket's name is in its encrypted part."""
    server = acceptor(kdc)
    tokens = {user: side(kdc, user).first() for user in ("alice", "bob")}

    def attempt(user: str, at: int) -> Attempt:
        token = bytearray(tokens[user])
        token[at] ^= 1

        def prepared() -> Callable[[], object]:
            made = server()
            return lambda: made.respond(bytes(token))

        return prepared

    # The ticket is in the middle of the message, and the authenticator at its end.
    middle, end = len(tokens["alice"]) // 2, -1
    assert take_the_same_time(attempt("alice", middle), attempt("alice", middle + 40))
    assert take_the_same_time(attempt("alice", end), attempt("alice", end - 20))
    assert take_the_same_time(attempt("alice", middle), attempt("bob", middle))


def test_no_message_is_more_than_an_error(kdc: Kdc) -> None:
    """The library's own reading of what a client sends. ``KBROKER_SASL_FRAMES`` has more of it tried."""
    server, rng = acceptor(kdc), random.Random("GSSAPI")
    tokens = [side(kdc, user).first() for user in ("alice", "bob")]
    refusals, memory = 0, 0
    count = FRAMES // 10
    for number in range(count):
        if number == count // 10:
            memory = resident_bytes()  # the library has what it keeps
        made = server()
        began = time.thread_time()
        try:
            made.respond(damaged(rng, rng.choice(tokens)))
        except SaslError as error:
            refusals += 1
            assert "kafka/localhost" not in str(error) or "\n" not in str(error)
        assert time.thread_time() - began < LONGEST_SECONDS
    assert refusals > count / 2
    assert resident_bytes() - memory < MOST_GROWTH


def acceptor(kdc: Kdc) -> Callable[[], GssapiServer]:
    """A maker of servers, as a listener has them."""
    from kbroker.security.sasl.kerberos.library import Acceptor
    from kbroker.security.sasl.kerberos.login import KerberosOptions

    keytab = str(kdc.directory / "kafka.keytab")
    accepting = Acceptor(KerberosOptions("kafka/localhost", True, keytab, False, None, "kafka", ()))
    namer = ShortNamer(["DEFAULT"], "REALM")
    return lambda: GssapiServer(accepting.context, namer)


async def test_a_replay_is_refused(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kbroker"):
        async with kerberos_node(kdc, tmp_path) as node:
            token = side(kdc).first()
            assert (await send(await handshake(node), token)).error_code == 0
            assert await refused(node, token) == TOLD
            await let_in(kdc, node)
    assert "Kerberos: Request is a replay" in caplog.text


async def test_a_security_layer_is_refused(kdc: Kdc, tmp_path: Path) -> None:
    async with kerberos_node(kdc, tmp_path) as node:
        for choice in (b"\x02\0\0\0", b"\x04\xff\xff\xff", b"\0\0\0\0", b"\x01\0", b""):
            alice = side(kdc)
            client = await handshake(node)
            answer = await send(client, alice.first())
            offer = await send(client, alice.respond(answer.auth_bytes))
            context = alice._context
            assert context.unwrap(offer.auth_bytes) == b"\x01\x01\0\0"
            answer = await send(client, context.wrap(choice))
            assert (answer.error_code, answer.error_message) == (E.SASL_AUTHENTICATION_FAILED, TOLD)
        # One who can have both takes none, and a wish for another name is not heard.
        client, alice = await handshake(node), side(kdc)
        answer = await send(client, alice.first())
        await send(client, alice.respond(answer.auth_bytes))
        assert (await send(client, alice._context.wrap(b"\x07\0\0\0kafka"))).error_code == 0


async def test_rules_name_the_user_or_nobody(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kbroker"):
        async with kerberos_node(
            kdc, tmp_path, **{"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](alice)s/a/b/g/U"}
        ) as node:
            await let_in(kdc, node)
            bob, client = side(kdc, "bob"), await handshake(node)
            answer = await send(client, bob.first())
            offer = await send(client, bob.respond(answer.auth_bytes))
            assert (await send(client, bob.respond(offer.auth_bytes))).error_message == TOLD
    assert "no rule of sasl.kerberos.principal.to.local.rules applies" in caplog.text


def test_a_ticket_that_has_ended(kdc: Kdc, tmp_path: Path) -> None:
    """It is renewed for new connections, on which the old one does not get anybody in."""
    from kbroker.security.sasl.kerberos.library import Initiator
    from kbroker.security.sasl.kerberos.login import KerberosOptions, RenewalRules

    options = KerberosOptions("alice", True, str(kdc.directory / "clients.keytab"), False, None, "kafka", ())
    login = Initiator(options, RenewalRules(0.0, 0.0, 0.0, "kinit"))  # each ticket is due at once
    held = [login._current() for _ in range(2)]
    assert held[0] is not held[1]
    slow = Initiator(options, RenewalRules(0.8, 0.05, 60.0, "kinit"))
    assert slow._current() is slow._current()
    # Without a KDC, one goes on with what there is.
    kdc.stop()
    try:
        assert login._current() is held[1]
        with pytest.raises(SaslError, match="KDC"):
            Initiator(options, RenewalRules(0.8, 0.05, 60.0, "kinit"))._current()
    finally:
        kdc.start()
    assert login._current() is not held[1]


def test_tickets_of_a_cache_are_renewed(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from kbroker.security.sasl.kerberos.library import Initiator
    from kbroker.security.sasl.kerberos.login import KerberosOptions, RenewalRules

    cache, keytab = tmp_path / "cache", kdc.directory / "clients.keytab"
    options = KerberosOptions(None, False, None, True, str(cache), "kafka", ())
    login = Initiator(options, RenewalRules(0.0, 0.0, 0.0, "kinit"))
    with pytest.raises(SaslError, match="Kerberos: "):
        login._current()
    get = ["kinit", "-k", "-t", str(keytab), "-c", str(cache), "-r", "1h", "alice"]
    subprocess.run(get, check=True, capture_output=True)
    first, before = login._current(), cache.read_bytes()
    assert login._current() is not first and cache.read_bytes() != before and not caplog.records
    # Where the command does not work, what there is serves on.
    lame = Initiator(options, RenewalRules(0.0, 0.0, 0.0, "false"))
    assert lame._current() is not lame._current()
    assert "the Kerberos tickets of the cache are not renewed" in caplog.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name is not set"),
        (
            {"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](*)"},
            "rules of Kerberos names: .*is a regular expression that kbroker cannot follow",
        ),
        ({"sasl.kerberos.principal.to.local.rules": "default"}, "'default' is neither DEFAULT nor of the form"),
        ({"jaas": f"{MODULE} required useTicketCache=true;"}, "a listener needs useKeyTab=true"),
        ({"jaas": f"{MODULE} required;"}, "useKeyTab=true or useTicketCache=true is needed"),
        ({"jaas": f'{MODULE} required useKeyTab=true principal="kafka/x" keyTab="/none";'}, "'/none' not found"),
        ({"jaas": f'{MODULE} required useKeyTab=yes principal="kafka/x";'}, "the option useKeyTab is true or false"),
        (
            {"jaas": f'{MODULE} required useKeyTab=true principal="kafka/x" keytabs="x";'},
            "no option keytabs; did you mean keyTab",
        ),
        (
            {"jaas": f'{MODULE} required useKeyTab=true principal="kafka/x" hunter2="x";'},
            "has an option that is not one",
        ),
        ({"jaas": f'{MODULE} required useKeyTab=true principal="kafka/x" serviceName="k";'}, "serviceName is k, and"),
        ({"jaas": f"{MODULE} required useKeyTab=true;"}, "useKeyTab=true needs the option principal"),
        ({"jaas": None}, "gssapi.sasl.jaas.config is not set: .*GSSAPI unless it is set.*Krb5LoginModule required"),
        ({"jaas": "bob"}, "No key table entry found for bob"),
    ],
)
def test_what_cannot_be_followed_keeps_the_node_from_starting(
    kdc: Kdc, tmp_path: Path, change: dict[str, str | None], problem: str
) -> None:
    name = "listener.name.plaintext.gssapi.sasl.jaas.config"
    given = properties(kdc)
    if "jaas" in change:
        jaas = line(kdc, "kafka", "bob") if change["jaas"] == "bob" else change["jaas"]
        change = {name: jaas}
    given.update({key: value for key, value in change.items() if value is not None})
    for key in [key for key, value in change.items() if value is None]:
        del given[key]
    with pytest.raises(FatalError, match=problem) as caught:
        NodeSecurity(configuration(tmp_path, **given), RealEnv(seed=1))
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)
