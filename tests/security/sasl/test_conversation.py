"""A listener's side of the conversation around a mechanism, and sessions that end (KIP-368)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal
from kbroker.security.sasl.conversation import OfferedMechanism, SaslConversation
from kbroker.security.sasl.mechanism import SaslError
from kbroker.security.sasl.plain import PasswordTable, PlainServer

T = TypeVar("T")

USERS = PasswordTable({"alice": "secret", "bob": "hunter2"})
ALICE = b"\0alice\0secret"


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    result: T = ended.value.value
    return result


class Expiring(PlainServer):
    """PLAIN of which credentials end at a time."""

    mechanism = "EXPIRING"
    expires_at_ms = 1_000_000_060_000


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0
        self.changes: list[str | None] = []

    def conversation(self, max_reauth_ms: int = 0) -> SaslConversation:
        talk = SaslConversation(
            {
                "PLAIN": OfferedMechanism(lambda: PlainServer(USERS.check), max_reauth_ms),
                "EXPIRING": OfferedMechanism(lambda: Expiring(USERS.check), max_reauth_ms),
            },
            lambda: self.seconds,
            lambda: 1_000_000_000_000,
        )
        talk.on_change = lambda: self.changes.append(talk.failure)
        return talk


def logged_in(clock: Clock, max_reauth_ms: int = 0, mechanism: str = "PLAIN") -> tuple[SaslConversation, int]:
    talk = clock.conversation(max_reauth_ms)
    assert talk.handshake(mechanism).error_code == 0
    response = at_once(talk.authenticate(ALICE))
    assert (response.error_code, response.error_message, response.auth_bytes) == (0, "", b"")
    assert talk.principal == KafkaPrincipal("User", "alice") and talk.is_authenticated and not talk.is_in_exchange
    return talk, response.session_lifetime_ms


def test_a_session_without_end() -> None:
    clock = Clock()
    talk, lifetime = logged_in(clock)
    assert (lifetime, talk.expires_at, clock.changes) == (0, None, [])
    assert not talk.may_authenticate_again()


@pytest.mark.parametrize(
    ("max_reauth_ms", "mechanism", "lifetime"),
    [(3_000, "PLAIN", 3_000), (0, "EXPIRING", 60_000), (3_000, "EXPIRING", 3_000), (90_000, "EXPIRING", 60_000)],
)
def test_a_session_ends_with_its_credential_or_as_configured(max_reauth_ms: int, mechanism: str, lifetime: int) -> None:
    talk, told = logged_in(Clock(), max_reauth_ms, mechanism)
    assert (told, talk.expires_at) == (lifetime, 100 + lifetime / 1000)


def test_a_mechanism_that_is_not_offered() -> None:
    talk = Clock().conversation()
    response = talk.handshake("GSSAPI")
    assert (response.error_code, response.mechanisms) == (E.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "EXPIRING"])
    assert talk.failure == "Unsupported SASL mechanism" and not talk.is_in_exchange


def test_a_client_that_fails_is_told_no_more_than_it_should() -> None:
    talk = Clock().conversation()
    talk.handshake("PLAIN")
    response = at_once(talk.authenticate(b"\0alice\0guess"))
    assert response.error_code == E.SASL_AUTHENTICATION_FAILED
    assert response.error_message == talk.failure == "Authentication failed: Invalid username or password"
    assert talk.principal == ANONYMOUS and not talk.is_authenticated

    class Broken(PlainServer):
        def respond(self, token: bytes) -> bytes:
            raise SaslError("the user does not exist")

    talk = SaslConversation({"X": OfferedMechanism(lambda: Broken(USERS.check), 0)}, lambda: 0.0, lambda: 0)
    talk.handshake("X")
    response = at_once(talk.authenticate(b""))
    assert response.error_message == talk.failure
    assert talk.failure == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert talk.detail == "the user does not exist"


def test_nothing_is_taken_without_a_handshake_or_after_a_failure() -> None:
    talk = Clock().conversation()
    with pytest.raises(SaslError):
        at_once(talk.take(ALICE))
    talk = Clock().conversation()
    talk.handshake("PLAIN")
    at_once(talk.authenticate(b"\0alice\0guess"))
    assert at_once(talk.authenticate(ALICE)).error_code == E.SASL_AUTHENTICATION_FAILED
    assert not talk.is_authenticated


def test_a_client_authenticates_again() -> None:
    clock = Clock()
    talk, _ = logged_in(clock, 3_000)
    clock.seconds = 102.0
    assert talk.may_authenticate_again()
    assert talk.handshake("PLAIN").error_code == 0 and talk.is_in_exchange
    assert at_once(talk.authenticate(ALICE)).session_lifetime_ms == 3_000
    assert (talk.expires_at, clock.changes) == (105.0, [None])
    clock.seconds = 102.9
    assert not talk.may_authenticate_again()
    clock.seconds = 103.0
    assert talk.may_authenticate_again()
    clock.seconds = 200.0
    assert talk.may_authenticate_again(), "late is not too late, as long as nothing else was asked"


@pytest.mark.parametrize(
    ("mechanism", "token", "message"),
    [
        ("PLAIN", b"\0alice\0guess", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0bob\0hunter2", "Cannot change principals during re-authentication from User.alice: User.bob"),
        (
            "EXPIRING",
            ALICE,
            "SASL mechanism 'EXPIRING' requested by client is not supported for re-authentication of mechanism 'PLAIN'",
        ),
    ],
)
def test_only_the_same_client_may_authenticate_again(mechanism: str, token: bytes, message: str) -> None:
    clock = Clock()
    talk, _ = logged_in(clock, 3_000)
    assert talk.handshake(mechanism).error_code == 0
    response = at_once(talk.authenticate(token))
    assert (response.error_code, response.error_message) == (E.SASL_AUTHENTICATION_FAILED, message)
    assert clock.changes == [message] and talk.principal.name == "alice"
    assert not talk.may_authenticate_again() and not talk.is_in_exchange


def test_an_unknown_mechanism_ends_a_session() -> None:
    clock = Clock()
    talk, _ = logged_in(clock, 3_000)
    assert talk.handshake("GSSAPI").error_code == E.UNSUPPORTED_SASL_MECHANISM
    assert clock.changes == ["Unsupported SASL mechanism"]
