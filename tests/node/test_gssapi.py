"""A listener with GSSAPI, and a KDC of its own: by raw frames, and by a hostile client's."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from node_harness import Client, Node, configuration, run, running_node

from kbroker.env import RealEnv
from kbroker.errors import ErrorCode as E
from kbroker.errors import FatalError
from kbroker.node.security import NodeSecurity
from kbroker.security.sasl.client import client_mechanism
from kbroker.security.sasl.errors import SaslError
from kbroker.testing.kdc import Kdc, missing_program, running_kdc
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kbroker.wire.messages.sasl_handshake import SaslHandshakeRequest

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


def talk(kdc: Kdc, path: Path, test: Any, **more: str) -> None:
    async def main() -> None:
        async with running_node(path, **properties(kdc, **more)) as node:
            await test(node)

    run(main)


def side(kdc: Kdc, user: str = "alice", service: str = "kafka", host: str = "localhost") -> Any:
    settings = {**SETTINGS, "sasl.kerberos.service.name": service}
    return client_mechanism("GSSAPI", line(kdc, "clients", user), settings).make(host)


async def handshake(node: Node, version: int = 1) -> Client:
    client = await node.connect()
    assert (await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), version)).error_code == 0
    return client


async def send(client: Client, token: bytes) -> Any:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def test_who_has_a_ticket_is_let_in(kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        client, alice = await handshake(node), side(kdc)
        token = alice.first()
        while not alice.is_done:
            answer = await send(client, token)
            assert answer.error_code == 0
            token = alice.respond(answer.auth_bytes)
        last = await send(client, token)
        assert (last.error_code, last.auth_bytes, last.session_lifetime_ms) == (0, b"", 0)
        assert (await client.ask(MetadataRequest(topics=[]), 12)).brokers

    with caplog.at_level(logging.DEBUG, "kbroker"):
        talk(kdc, tmp_path, test)
