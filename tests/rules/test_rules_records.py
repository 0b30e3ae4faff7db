"""Records that rules are given, and settings of rules."""

from __future__ import annotations

import pickle

import pytest

from kbroker.rules import Authorizer, Login, Password, settings


def test_a_password_does_not_show_itself() -> None:
    password = Password("geheim")
    login = Login("SASL_SSL", "10.0.0.1", "alice", password)
    for text in (repr(password), str(password), f"{password}", f"{login}", repr([password])):
        assert "geheim" not in text and "[hidden]" in text
    with pytest.raises(TypeError, match="reveal"):
        pickle.dumps(login)
    assert password.reveal() == "geheim"


def test_a_password_is_compared_as_a_whole() -> None:
    password = Password("geheim")
    assert password == "geheim" and password == Password("geheim")
    assert password != "geheiM" and password != "" and password != b"geheim" and password != Password("x")
    assert Password("\ud800") != "geheim"
    with pytest.raises(TypeError):
        hash(password)


def test_settings_that_make_no_sense_are_refused() -> None:
    @settings(keep_seconds=60, threads=2)
    def rule(action: object) -> bool:
        return True

    assert rule.keep_seconds == 60 and rule.threads == 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="no setting 'keep'"):
        settings(keep=1)
    for wrong in ({"keep_seconds": -1}, {"timeout_seconds": 0}, {"threads": 0}, {"keep_seconds": float("nan")}):
        with pytest.raises(ValueError, match="makes no sense"):
            settings(**wrong)


def test_each_invalidation_is_a_change() -> None:
    one, other = Authorizer(), Authorizer()
    one.invalidate()
    one.invalidate()
    assert (one.changes, other.changes) == (2, 0)
