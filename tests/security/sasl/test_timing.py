"""How long a refusal takes tells nothing: not whether a user exists, nor how near a password or a nonce is.

Two kinds of attempts are made in turns, so that whatever else the machine does befalls both, and their medians are
compared. A run that was disturbed is made again.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.errors import SaslError
from kbroker.security.sasl.plain import PasswordTable, PlainServer
from kbroker.security.sasl.scram import (
    CredentialForm,
    ScramAccount,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    UnknownUsers,
)

ATTEMPTS = 400
RUNS = 8
MOST_DIFFERENCE = 0.15
"""Of the longer median; a missing HMAC of a SCRAM message makes a third or more."""

Attempt = Callable[[], Callable[[], object]]
"""Prepares an attempt, and returns the step whose time counts."""


def take_the_same_time(one: Attempt, other: Attempt) -> bool:
    """Whether some run finds no difference between the two."""
    for _ in range(RUNS):
        times: tuple[list[int], list[int]] = ([], [])
        for _ in range(ATTEMPTS):
            for attempt, taken in zip((one, other), times, strict=True):
                step = attempt()
                began = time.perf_counter_ns()
                with contextlib.suppress(SaslError):
                    step()
                taken.append(time.perf_counter_ns() - began)
        medians = [statistics.median(each) for each in times]
        if max(medians) - min(medians) <= MOST_DIFFERENCE * max(medians):
            return True
    return False


def plain(user: str, password: str) -> Attempt:
    table = PasswordTable({"alice": "the-right-password", "bobby": "another-password-"})
    token = f"\0{user}\0{password}".encode()

    def attempt() -> Callable[[], object]:
        server = PlainServer(table.check)
        return lambda: server.respond(token)

    return attempt


@pytest.mark.parametrize(
    ("user", "password"),
    [("nosuc", "the-wrong-password"), ("alice", "the-right-passworX"), ("alice", "Xhe-right-password")],
)
def test_plain(user: str, password: str) -> None:
    assert take_the_same_time(plain("alice", "the-wrong-password"), plain(user, password))


def scram_server(mechanism: ScramMechanism) -> ScramServer:
    credential = _CREDENTIALS[mechanism]
    forms = Counter({CredentialForm.of(credential.salt, credential.iterations): 3})
    unknown = UnknownUsers(mechanism, lambda: forms, lambda: b"of the cluster")

    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        return ScramAccount(credential, KafkaPrincipal("User", name)) if name == "alice" else None

    return ScramServer(mechanism, lookup, unknown)


_CREDENTIALS = {mechanism: ScramCredential.from_password(mechanism, "secret") for mechanism in ScramMechanism}


def first_message(mechanism: ScramMechanism, user: str) -> Attempt:
    def attempt() -> Callable[[], object]:
        server, client = scram_server(mechanism), ScramClient(mechanism, user, "wrong")
        token = client.first()
        return lambda: server.respond(token)

    return attempt


def final_message(mechanism: ScramMechanism, user: str, change_nonce: Callable[[str], str] = str) -> Attempt:
    def attempt() -> Callable[[], object]:
        server, client = scram_server(mechanism), ScramClient(mechanism, user, "wrong")
        challenge = server.respond(client.first()).decode()
        nonce = challenge.split(",")[0][2:]
        proof = _PROOFS[mechanism]
        token = f"c=biws,r={change_nonce(nonce)},p={proof}".encode()
        return lambda: server.respond(token)

    return attempt


_PROOFS = {ScramMechanism.SCRAM_SHA_256: "A" * 43 + "=", ScramMechanism.SCRAM_SHA_512: "A" * 86 + "=="}


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_of_a_user_who_exists_and_of_one_who_does_not(mechanism: ScramMechanism) -> None:
    assert take_the_same_time(first_message(mechanism, "alice"), first_message(mechanism, "nosuc"))
    assert take_the_same_time(final_message(mechanism, "alice"), final_message(mechanism, "nosuc"))


def test_a_nonce_that_is_wrong_in_its_first_or_its_last_letter() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    begins = final_message(mechanism, "alice", lambda nonce: f"!{nonce[1:]}")
    ends = final_message(mechanism, "alice", lambda nonce: f"{nonce[:-1]}!")
    assert take_the_same_time(begins, ends)


def test_a_difference_is_found() -> None:
    """Or the others would prove nothing."""
    known = first_message(ScramMechanism.SCRAM_SHA_256, "alice")

    def leaking() -> Callable[[], object]:
        step = known()

        def longer() -> object:
            UnknownUsers(ScramMechanism.SCRAM_SHA_256).credential("nosuc")
            return step()

        return longer

    assert not take_the_same_time(known, leaking)
