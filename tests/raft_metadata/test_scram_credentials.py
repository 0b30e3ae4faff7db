"""AlterUserScramCredentials at the controller: what is changed, what is refused, and what is written."""

from __future__ import annotations

import dataclasses

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.raft_metadata.controller.scram import ScramDeletion, ScramUpsertion, alter_scram_credentials
from kbroker.security.sasl.scram import ScramCredential, ScramMechanism
from tests.raft_metadata.controller_harness import Harness


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, b"salt", b"salted")


def alter(
    harness: Harness, *, delete: list[ScramDeletion] | None = None, upsert: list[ScramUpsertion] | None = None
) -> dict[str, tuple[int, str] | None]:
    outcomes = harness.apply(alter_scram_credentials(harness.view, delete or [], upsert or []))
    return {user: None if error is None else (int(error.code), str(error.message)) for user, error in outcomes.items()}


def stored(harness: Harness) -> set[tuple[str, int]]:
    return set(harness.view.image.principals.scram)


def test_credentials_come_and_go() -> None:
    harness = Harness()
    assert alter(harness, upsert=[upsertion("alice"), upsertion("bob", 2, 16384)]) == {"alice": None, "bob": None}
    record = harness.view.image.principals.scram["bob", 2]
    credential = ScramCredential.from_salted(ScramMechanism.SCRAM_SHA_512, b"salted", b"salt", 16384)
    assert (record.salt, record.stored_key, record.server_key, record.iterations) == (
        credential.salt,
        credential.stored_key,
        credential.server_key,
        16384,
    )
    changed = alter(harness, delete=[ScramDeletion("alice", 1)], upsert=[upsertion("bob", 1)])
    assert changed == {"alice": None, "bob": None}
    assert stored(harness) == {("bob", 1), ("bob", 2)}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(""), E.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("eve", 0), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("eve", 3), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("eve", iterations=4095), E.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("eve", iterations=-1), E.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("eve", iterations=16385), E.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (ScramDeletion("", 1), E.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (ScramDeletion("eve", 9), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (ScramDeletion("eve", 1), E.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        (ScramDeletion("alice", 2), E.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_what_is_refused_leaves_the_others(change: ScramDeletion | ScramUpsertion, code: E, message: str) -> None:
    harness = Harness()
    alter(harness, upsert=[upsertion("alice")])
    is_deletion = isinstance(change, ScramDeletion)
    outcomes = alter(
        harness,
        delete=[change] if isinstance(change, ScramDeletion) else [],
        upsert=[upsertion("bob")] if is_deletion else [upsertion("bob"), change],  # type: ignore[list-item]
    )
    assert outcomes == {"bob": None, change.user: (code, message)}
    assert stored(harness) == {("alice", 1), ("bob", 1)}


def test_a_user_is_named_once_in_a_request() -> None:
    harness = Harness()
    alter(harness, upsert=[upsertion("alice"), upsertion("bob")])
    twice = (E.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    outcomes = alter(
        harness,
        delete=[ScramDeletion("alice", 1), ScramDeletion("bob", 1), ScramDeletion("bob", 1)],
        upsert=[upsertion("alice", 2), upsertion("carol"), upsertion("carol", 2), upsertion("carol", 2)],
    )
    assert outcomes == {"alice": twice, "bob": twice, "carol": twice}
    assert stored(harness) == {("alice", 1), ("bob", 1)}


def test_a_salted_password_is_not_empty() -> None:
    """With Kafka's answer, where Java refuses the key; a user who is named twice is told that."""
    harness = Harness()
    empty = dataclasses.replace(upsertion("eve"), salted_password=b"")
    assert alter(harness, upsert=[upsertion("bob"), empty]) == {"bob": None, "eve": (E.UNKNOWN_SERVER_ERROR, "None")}
    twice = alter(harness, upsert=[empty, empty])["eve"]
    assert twice is not None and twice[0] == E.DUPLICATE_RESOURCE
    assert stored(harness) == {("bob", 1)}


def test_old_levels_have_no_scram() -> None:
    harness = Harness(level=10)
    refused = (E.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    assert alter(harness, upsert=[upsertion("alice")]) == {"alice": refused}
    assert alter(harness, delete=[ScramDeletion("alice", 1)]) == {"alice": refused}
    assert stored(Harness(level=11)) == set()
    assert alter(Harness(level=11), upsert=[upsertion("alice")]) == {"alice": None}


def test_no_text_shows_a_key() -> None:
    assert "salted" not in repr(upsertion("alice"))
