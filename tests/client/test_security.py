"""Entering secure listeners: TLS and SASL on the client's side, and what it says when it is not let in."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.connection import Connection
from kbroker.client.errors import AuthenticationFailed, ClientError, ConnectionFailed
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.scram import ScramAccount, ScramCredential, ScramMechanism, ScramServer, UnknownUsers
from kbroker.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from kbroker.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.client.fake_broker import FakeBroker
from tests.client.test_connection import raw_peer
from tests.patience import SHORT

authority = pytest.importorskip("kbroker.security.tls.authority", exc_type=ImportError)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRET = "s3cr3t-s3cr3t"


class SaslBroker(FakeBroker):
    """Asks for PLAIN or SCRAM-SHA-256 before anything else; ``alice`` has a password."""

    def __init__(self, *, lifetime_ms: int = 0) -> None:
        super().__init__(
            {
                SaslHandshakeRequest: self._handshake,
                SaslAuthenticateRequest: self._authenticate,
                ListGroupsRequest: lambda request, version: ListGroupsResponse(),
            }
        )
        self.lifetime_ms = lifetime_ms
        self.handshake_error = 0
        self._scram: ScramServer | None = None
        salted = ScramMechanism.SCRAM_SHA_256.salted_password(SECRET, b"salt", 4096)
        self.credential = ScramCredential.from_salted(ScramMechanism.SCRAM_SHA_256, salted, b"salt", 4096)

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        assert version == 1
        known = ["SCRAM-SHA-256", "PLAIN"]
        self._scram = None
        if request.mechanism == "SCRAM-SHA-256":
            mechanism = ScramMechanism.SCRAM_SHA_256
            self._scram = ScramServer(mechanism, self._account, UnknownUsers(mechanism))
        code = self.handshake_error or (0 if request.mechanism in known else 33)
        return SaslHandshakeResponse(error_code=code, mechanisms=known)

    def _account(self, user: str, is_token: bool) -> ScramAccount | None:
        return ScramAccount(self.credential, KafkaPrincipal("User", user)) if user == "alice" else None

    def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        token = bytes(request.auth_bytes)
        if self._scram is not None:
            return SaslAuthenticateResponse(
                auth_bytes=self._scram.respond(token),
                session_lifetime_ms=self.lifetime_ms if self._scram.is_done else 0,
            )
        if token != b"\0alice\0" + SECRET.encode():
            return SaslAuthenticateResponse(error_code=58, error_message="Authentication failed: Invalid user.")
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)


class TlsBroker(FakeBroker):
    """Speaks TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__({ListGroupsRequest: lambda request, version: ListGroupsResponse()})

    def _serve(self, connection: socket.socket) -> None:
        below = connection.dup()
        secure = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        try:
            secure.do_handshake()
        except OSError:
            with suppress(OSError):
                while below.recv(1000):  # closed with bytes unread, it would take its alert back
                    pass
        else:
            super()._serve(secure)
        secure.close()
        below.close()


def properties(**given: str) -> ClientProperties:
    return ClientProperties({name.replace("_", "."): value for name, value in given.items()})


def connect(port: int, given: ClientProperties, host: str = "127.0.0.1") -> Connection:
    return Connection(host, port, client_id="t", deadline=time.monotonic() + SHORT, security=security_of(given))


def login(mechanism: str, module: str, password: str = SECRET) -> ClientProperties:
    return properties(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f'{module} username="alice" password="{password}";',
    )


@pytest.mark.parametrize(("mechanism", "module", "rounds"), [("PLAIN", PLAIN, 1), ("SCRAM-SHA-256", SCRAM, 2)])
def test_logs_in_before_anything_else(mechanism: str, module: str, rounds: int) -> None:
    with SaslBroker() as broker, Client(broker.bootstrap, security=security_of(login(mechanism, module))) as client:
        client.ask_any(ListGroupsRequest())
        client.ask_node(1, ListGroupsRequest())
        told = broker.names()
    once = ["SaslHandshake", *["SaslAuthenticate"] * rounds]
    assert told == [*once, "ListGroups", *once, "ListGroups"]


def test_a_refusal_has_the_broker_s_own_text_and_is_not_tried_again() -> None:
    with SaslBroker() as broker, Client(broker.bootstrap, security=security_of(login("PLAIN", PLAIN, "x"))) as client:
        with pytest.raises(
            AuthenticationFailed,
            match=r"^\S+ refuses the login: Authentication failed: Invalid user \(SASL_AUTHENTICATION_FAILED\)$",
        ):
            client.refresh(())
        assert broker.names() == ["SaslHandshake", "SaslAuthenticate"]


def test_a_mechanism_that_the_broker_does_not_have() -> None:
    with (
        SaslBroker() as broker,
        pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-512; it has: PLAIN, SCRAM-SHA-256$"),
    ):
        connect(broker.port, login("SCRAM-SHA-512", SCRAM))


def test_a_listener_without_sasl() -> None:
    with SaslBroker() as broker:
        broker.handshake_error = 34
        with pytest.raises(AuthenticationFailed, match="does not ask for SASL there"):
            connect(broker.port, login("PLAIN", PLAIN))


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    with SaslBroker() as broker:
        mechanism = ScramMechanism.SCRAM_SHA_256
        right = broker.credential
        other = ScramCredential.from_salted(mechanism, b"other" * 8, b"salt", 4096)
        # It lets everybody in who knows the password, and cannot prove that it does.
        broker.credential = ScramCredential(right.salt, right.stored_key, other.server_key, right.iterations)
        with pytest.raises(AuthenticationFailed, match="does not prove that it knows the user"):
            connect(broker.port, login("SCRAM-SHA-256", SCRAM))


def test_a_session_with_an_end_is_renewed_on_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    once = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    real, ahead = time.monotonic, 0
    monkeypatch.setattr(time, "monotonic", lambda: real() + ahead)
    lifetime = 3600
    with SaslBroker(lifetime_ms=lifetime * 1000) as broker:
        connection = connect(broker.port, login("SCRAM-SHA-256", SCRAM))
        ahead = lifetime * 3 // 4
        connection.send(ListGroupsRequest())
        ahead = lifetime * 7 // 8
        connection.request(ListGroupsRequest(), time.monotonic() + SHORT)
        assert broker.names() == [*once, "ListGroups", *once, "ListGroups"]
        assert connection.in_flight == 1  # its answer was taken in before
        connection.receive(time.monotonic())
        connection.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem and other.pem to trust; node.pem and alice.pem, issued by the first."""
    directory = tmp_path_factory.mktemp("certificates")
    ca: Any = authority.Authority.create()
    (directory / "ca.pem").write_text(ca.certificate_pem)
    (directory / "other.pem").write_text(authority.Authority.create("CN=other").certificate_pem)
    (directory / "node.pem").write_text(ca.issue("CN=node", ["127.0.0.1"]).pem())
    (directory / "alice.pem").write_text(ca.issue("CN=alice").pem("key password"))
    return directory


@pytest.fixture
def tls_broker(certificates: Path) -> Iterator[TlsBroker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "node.pem")
    context.load_verify_locations(certificates / "ca.pem")
    with TlsBroker(context) as broker:
        yield broker


def trusting(path: Path, **more: str) -> ClientProperties:
    return properties(security_protocol="ssl", ssl_truststore_type="PEM", ssl_truststore_location=str(path), **more)


def test_tls_with_a_certificate_that_is_trusted(tls_broker: TlsBroker, certificates: Path) -> None:
    connection = connect(tls_broker.port, trusting(certificates / "ca.pem"))
    connection.request(ListGroupsRequest(), time.monotonic() + SHORT)
    assert tls_broker.names() == ["ListGroups"] and not connection.has_response
    connection.close()


def test_the_client_s_certificate_is_shown(tls_broker: TlsBroker, certificates: Path) -> None:
    tls_broker._context.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(AuthenticationFailed, match=r"wants a certificate of the client \(ssl.keystore.location\)"):
        connect(tls_broker.port, trusting(certificates / "ca.pem"))
    own = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(certificates / "alice.pem")}
    given = trusting(certificates / "ca.pem", ssl_key_password="key password", **own)
    connection = connect(tls_broker.port, given)
    connection.request(ListGroupsRequest(), time.monotonic() + SHORT)
    connection.close()
    with pytest.raises(ClientError, match=r"^client properties: .*ssl\.key\.password") as error:
        security_of(trusting(certificates / "ca.pem", ssl_key_password="not the one", **own))
    assert "not the one" not in str(error.value)


def test_certificates_that_are_not_trusted_or_for_another_host(tls_broker: TlsBroker, certificates: Path) -> None:
    said = r"^the certificate of 127.0.0.1:\d+ is not accepted: .*; ssl\.truststore\.location"
    with pytest.raises(AuthenticationFailed, match=said):
        connect(tls_broker.port, trusting(certificates / "other.pem"))
    with pytest.raises(AuthenticationFailed, match=r"is not accepted: Hostname mismatch.*'localhost'"):
        connect(tls_broker.port, trusting(certificates / "ca.pem"), "localhost")
    given = trusting(certificates / "ca.pem", ssl_endpoint_identification_algorithm="")
    connect(tls_broker.port, given, "localhost").close()
    assert tls_broker.names() == []


def test_a_plain_listener_where_tls_is_expected(certificates: Path) -> None:
    with raw_peer(b"") as port, pytest.raises(ClientError, match=r"TLS.*is security\.protocol right"):
        connect(port, trusting(certificates / "ca.pem"))


def test_a_plain_client_that_is_cut_off_is_told_what_may_be_wrong() -> None:
    with FakeBroker({ListGroupsRequest: lambda request, version: None}) as broker:
        connection = Connection("127.0.0.1", broker.port, client_id="t", deadline=time.monotonic() + SHORT)
        with pytest.raises(ConnectionFailed, match=r"closed the connection \(is security.protocol right\?\)"):
            connection.request(ListGroupsRequest(), time.monotonic() + SHORT)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff\xfe",
        b"r=x,s=x,i=1",
        b"r=,s=,i=",
        b"e=no",
        b"v=" + b"A" * 100_000,
        b"m=x,r=a,s=YQ==,i=4096",
        b"r=" + b"9" * 1000 + b",s=YQ==,i=999999999999999999",
    ],
)
def test_nonsense_of_a_server_is_one_line(answer: bytes) -> None:
    with SaslBroker() as broker:
        broker.answers[SaslAuthenticateRequest] = lambda request, version: SaslAuthenticateResponse(auth_bytes=answer)
        with pytest.raises(AuthenticationFailed) as error:
            connect(broker.port, login("SCRAM-SHA-256", SCRAM))
        assert "\n" not in str(error.value) and len(str(error.value)) < 500 and SECRET not in str(error.value)
