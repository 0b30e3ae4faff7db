"""Delegation tokens in the controller: any course of creations, renewals and expiries, beside a plain model."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.delegation_tokens import (
    MOST_EXPIRED_AT_ONCE,
    create_token,
    expire_token,
    remove_expired_tokens,
    renew_token,
)
from kbroker.raft_metadata.metadata_version import DELEGATION_TOKENS
from kbroker.security.delegation_tokens import DelegationTokens
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.scram import ScramMechanism
from tests.raft_metadata.controller_harness import Harness

ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
NOW = 1_700_000_000_000
LAST = (1 << 63) - 1


def settings(**more: int) -> DelegationTokens:
    return DelegationTokens("key", **{"max_lifetime_ms": 1000, "expiry_time_ms": 100, **more})


def make(harness: Harness, of: DelegationTokens, now: int = NOW, **more: Any) -> Any:
    people: dict[str, Any] = {"owner": ALICE, "requester": ALICE, "renewers": [BOB], "max_lifetime_ms": -1}
    return harness.apply(create_token(harness.view, of, now, **{**people, **more}))


def tokens(harness: Harness) -> Any:
    return harness.view.image.principals.delegation_tokens


Step = tuple[str, int, int]


@given(
    st.lists(
        st.tuples(st.sampled_from(["create", "renew", "expire", "sweep"]), st.integers(0, 150), st.integers(-50, 2000)),
        max_size=30,
    )
)
def test_no_course_of_events_lets_a_token_outlive_its_time(steps: list[Step]) -> None:
    harness, of, now = Harness(), settings(), NOW
    model: dict[str, tuple[int, int]] = {}
    for what, wait, period in steps:
        now += wait
        if what == "create":
            token = make(harness, of, now, max_lifetime_ms=period)
            limit = now + (min(1000, period) if period > 0 else 1000)
            model[token.token_id] = (limit, min(limit, now + 100))
        elif what == "sweep":
            harness.apply(remove_expired_tokens(harness.view, now))
            model = {token_id: times for token_id, times in model.items() if min(times) >= now}
        elif model:
            token_id = list(model)[wait % len(model)]
            limit, expires = model[token_id]
            operation = renew_token if what == "renew" else expire_token
            given: dict[str, Any] = {"requester": BOB, "secret": of.hmac(token_id), "period_ms": period}
            if what == "expire" and period < 0:
                assert harness.apply(expire_token(harness.view, of, now, **given)) == now
                del model[token_id]
            elif expires < now:
                with pytest.raises(ApiError) as refused:
                    operation(harness.view, of, now, **given)
                assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
            else:
                if what == "renew":
                    wanted = now + (min(100, period) if period > 0 else 100)
                else:
                    wanted = now + period
                assert harness.apply(operation(harness.view, of, now, **given)) == min(limit, wanted)
                model[token_id] = (limit, min(limit, wanted))
        assert {
            each.token_id: (each.max_timestamp, each.expiration_timestamp) for each in tokens(harness).values()
        } == model


def test_only_its_people_change_a_token() -> None:
    harness, of = Harness(), settings()
    token = make(harness, of, requester=CAROL)
    for operation in (renew_token, expire_token):
        for who, secret, code in (
            (CAROL, of.hmac(token.token_id), ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
            (KafkaPrincipal("Group", "bob"), of.hmac(token.token_id), ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
            (ALICE, settings().hmac("another"), ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
            (ALICE, b"", ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        ):
            with pytest.raises(ApiError) as refused:
                operation(harness.view, of, NOW, requester=who, secret=secret, period_ms=50)
            assert refused.value.code is code
    renewed = DelegationTokens("other key", max_lifetime_ms=1000, expiry_time_ms=100)
    with pytest.raises(ApiError) as refused:
        renew_token(harness.view, renewed, NOW, requester=ALICE, secret=of.hmac(token.token_id), period_ms=50)
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_times_do_not_overflow() -> None:
    harness, of = Harness(), settings(max_lifetime_ms=LAST, expiry_time_ms=LAST)
    token = make(harness, of, max_lifetime_ms=LAST)
    assert token.max_timestamp == token.expiration_timestamp == LAST
    found = expire_token(harness.view, of, NOW, requester=ALICE, secret=of.hmac(token.token_id), period_ms=LAST)
    assert harness.apply(found) == LAST


def test_where_there_are_none_and_where_the_level_is_too_low() -> None:
    low = Harness(level=DELEGATION_TOKENS - 1)
    for harness, of, code in (
        (Harness(), None, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (low, None, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (low, settings(), ErrorCode.UNSUPPORTED_VERSION),
    ):
        with pytest.raises(ApiError) as refused:
            make(harness, of)  # type: ignore[arg-type]
        assert refused.value.code is code
    low.raise_level(DELEGATION_TOKENS)
    assert make(low, settings()).owner == "User:alice"


def test_many_expired_tokens_are_removed_in_portions_and_take_little_memory() -> None:
    harness, of = Harness(), settings()
    for _ in range(5):
        make(harness, of, NOW + 500)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(MOST_EXPIRED_AT_ONCE + 1):
        token = make(harness, of)
    harness.written.clear()
    assert of.find(of.hmac(token.token_id), tokens(harness)) == token
    assert tracemalloc.get_traced_memory()[0] - before < 3_000_000, "three kilobytes a token"
    tracemalloc.stop()
    assert harness.apply(remove_expired_tokens(harness.view, NOW + 101)) is True
    assert len(tokens(harness)) == 6
    assert harness.apply(remove_expired_tokens(harness.view, NOW + 101)) is False
    assert len(tokens(harness)) == 5
    # Whoever is gone is forgotten, with what was made of it.
    assert of.find(of.hmac(token.token_id), tokens(harness)) is None
    assert len(of._ids) == len(of._digests) == 5
    for each in tokens(harness):
        of.credential(ScramMechanism.SCRAM_SHA_256, each, tokens(harness))
    harness.apply(remove_expired_tokens(harness.view, NOW + 601))
    last = make(harness, of)
    of.credential(ScramMechanism.SCRAM_SHA_256, last.token_id, tokens(harness))
    assert set(of._credentials) == {(last.token_id, ScramMechanism.SCRAM_SHA_256)}
