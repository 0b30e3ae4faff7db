"""Damaged frames before authentication: each is answered or ends the connection, by an error that is one.

None of them keeps others waiting, and together they leave no memory behind. ``KBROKER_SASL_FRAMES`` has more of them
tried: 200,000 of each mechanism and version take half a minute.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import re
import resource
import time
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.registration import BROKER, registrations
from kbroker.node.security.sasl.admission import SaslAdmission, _Exchange
from kbroker.node.security.sasl.gssapi import _InThreads
from kbroker.node.security.sasl.threads import LoginThreads
from kbroker.node.serving.admission import AdmissionRefused
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealEnv
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.kerberos.exchange import GssapiServer
from kbroker.security.sasl.kerberos.names import ShortNamer
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerServer, initial_response
from kbroker.security.sasl.oauthbearer.token import BearerToken, TokenRefused
from kbroker.security.sasl.plain import PasswordTable, PlainServer
from kbroker.security.sasl.scram import ScramAccount, ScramCredential, ScramMechanism, ScramServer, UnknownUsers
from kbroker.wire.compiler import encode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import encode_request_header
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import configuration

LONGEST_SECONDS = 1
"""Of processor time, for one frame."""
MOST_GROWTH = 64 << 20
"""Bytes."""

FRAMES = int(os.environ.get("KBROKER_SASL_FRAMES", "3000"))
TICKET = b"\x60 the secret ticket of alice"
SERVER_FIRST = re.compile(rb"r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/]+=*,i=[0-9]+")
"""A server's answer to a client's first message of SCRAM, somewhere in a frame."""
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required username=alice password=secret;"


class Ticketed:
    """A context of GSS that knows one ticket. `test_gssapi` has those of the system's library."""

    initiator = "alice@REALM"

    def __init__(self) -> None:
        self.is_established = False

    def step(self, token: bytes) -> bytes:
        if token != TICKET:
            raise SaslError("another ticket")
        self.is_established = True
        return b"the server's"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped" + message

    def unwrap(self, token: bytes) -> bytes:
        if token[:7] != b"wrapped":
            raise SaslError("not wrapped")
        return token[7:]


class InPlace(LoginThreads):
    """No threads: a step takes no time here."""

    async def run(self, step: Any, *arguments: Any) -> Any:
        return step(*arguments)


def admission(path: Any, *, failure_delay: float = 0, **budgets: Any) -> SaslAdmission:
    users = PasswordTable({"alice": "secret"})

    def scram(mechanism: ScramMechanism) -> OfferedMechanism:
        account = ScramAccount(ScramCredential.from_password(mechanism, "secret"), KafkaPrincipal("User", "alice"))
        unknown = UnknownUsers(mechanism)

        def lookup(name: str, is_token: bool) -> ScramAccount | None:
            return account if name == "alice" and not is_token else None

        return OfferedMechanism(lambda: ScramServer(mechanism, lookup, unknown), 0)

    def judge(token: str) -> BearerToken:
        if token == "secret":
            return BearerToken("alice", None)
        raise TokenRefused("another token")

    namer = ShortNamer(["DEFAULT"], "REALM")
    services: Any = SimpleNamespace(
        tap=None,
        env=RealEnv(budgets=DEFAULTS._replace(**budgets)),
        config=configuration(path),
        telemetry=None,
        metadata=SimpleNamespace(finalized_features=lambda: ({}, -1)),
    )
    return SaslAdmission(
        {
            "PLAIN": OfferedMechanism(lambda: PlainServer(users.check), 0),
            **{mechanism.mechanism_name: scram(mechanism) for mechanism in ScramMechanism},
            "OAUTHBEARER": OfferedMechanism(lambda: OAuthBearerServer(judge), 0),
            "GSSAPI": OfferedMechanism(lambda: _InThreads(GssapiServer(Ticketed, namer), InPlace()), 0),
        },
        services=services,
        table=registrations(BROKER),
        listener_name="PLAINTEXT",
        is_controller=False,
        max_receive_bytes=524_288,
        failure_delay=failure_delay,
    )


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def request(message: Any, version: int) -> bytes:
    return encode_request_header(type(message).api_key, version, 7, "me") + encode(message, version)


def damaged(rng: random.Random, frame: bytes) -> bytes:
    """The frame with a few bytes changed, cut off, put in or said twice; or as it is."""
    data = bytearray(frame)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at:] = b""
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(9))
            case 2:
                data[at : at + 1] = bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))])
            case 3:
                data[at:at] = data[at : at + rng.randrange(40)]
            case _:
                data[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
    return bytes(data)


def tokens(rng: random.Random, mechanism: str) -> Generator[bytes, bytes, None]:
    """A client's messages of a mechanism; the frame of the server's answer to each is sent in."""
    if mechanism == "PLAIN":
        yield b"\0alice\0secret"
    elif mechanism == "GSSAPI":
        yield TICKET
        yield b""
        yield b"wrapped" + bytes([rng.choice((1, 1, 1, 2, 7)), 0, 0, 0])
    elif mechanism == "OAUTHBEARER":
        yield initial_response("secret", {"traceId": "7"})
        yield b"\x01"
    else:
        client = client_mechanism(mechanism, SCRAM_LINE, {}).make("localhost")
        challenge = SERVER_FIRST.search((yield client.first()))
        try:
            yield client.respond(challenge[0]) if challenge else b"c=biws,r=abc,p=AAAA"
        except SaslError:  # its nonce was damaged on the way
            yield b"c=biws,r=abc,p=AAAA"


def frames(rng: random.Random, mechanism: str, version: int) -> Generator[bytes, bytes, None]:
    """A client's frames; what the server answers to each is sent in."""
    if rng.random() < 0.3:
        yield request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), rng.randrange(5))
    if rng.random() < 0.05:
        yield request(MetadataRequest(topics=None), 12)
    yield request(SaslHandshakeRequest(mechanism=mechanism), version)
    said = tokens(rng, mechanism)
    token: bytes | None = next(said)
    while token is not None:
        token = damaged(rng, token) if rng.random() < 0.4 else token
        answer = yield request(SaslAuthenticateRequest(auth_bytes=token), rng.randrange(3)) if version else token
        try:
            token = said.send(answer)
        except StopIteration:
            token = None


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"])
async def test_no_frame_is_more_than_an_error(
    tmp_path: Any, mechanism: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client's thousands of iterations are always the same ones.
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", functools.lru_cache(1000)(hashlib.pbkdf2_hmac))
    listener = admission(tmp_path)
    rng = random.Random(f"{mechanism} {version}")
    client: Any = SimpleNamespace(stream=SimpleNamespace(peer=("127.0.0.1", 1)))
    counts = {"answered": 0, "refused": 0, "let in": 0}
    memory, longest = resident_bytes(), 0.0

    async def talk() -> int:
        """A connection; the number of frames that it has sent."""
        nonlocal longest
        exchange, said = _Exchange(listener, client), frames(rng, mechanism, version)
        frame, sent = next(said), 0
        while True:
            sent += 1
            began = time.thread_time()
            try:
                reply = await exchange.take(damaged(rng, frame))
            except (AdmissionRefused, WireError) as error:
                assert "secret" not in str(error)
                counts["refused"] += 1
                return sent
            finally:
                longest = max(longest, time.thread_time() - began)
            assert reply is not None and int.from_bytes(reply[:4], "big") == len(reply) - 4
            counts["answered"] += 1
            if exchange.conversation.is_authenticated:
                assert exchange.conversation.principal == KafkaPrincipal("User", "alice")
                counts["let in"] += 1
                return sent
            try:
                frame = said.send(reply)
            except StopIteration:
                return sent

    began = time.perf_counter()
    sent = 0
    while sent < FRAMES:
        sent += await talk()
    growth = resident_bytes() - memory
    seconds = time.perf_counter() - began
    print(f"{FRAMES} frames: {seconds:.1f} s, the longest {longest * 1000:.1f} ms, {growth >> 20} MB")
    assert longest < LONGEST_SECONDS and growth < MOST_GROWTH
    assert counts["answered"] > FRAMES / 10 and counts["refused"] > FRAMES / 10
    assert counts["let in"] > 0
