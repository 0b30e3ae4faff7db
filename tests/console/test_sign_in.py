"""Signing in with the cluster's own users; each session sees and may do what its user may."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.properties import ClientProperties
from kbroker.console.api.session import user_properties
from kbroker.console.sessions import IDLE_SECONDS, MAX_SESSIONS, Sessions
from kbroker.security.sasl.jaas import parse_jaas
from kbroker.testing import RunningBroker, running_broker
from tests.console.console_process import ConsoleProcess, console_process


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One whose users are asked for, and whose rules let the admin do everything, and nobody else anything."""
    with running_broker(security="sasl_plaintext", super_users=["admin"]) as running:
        yield running


@pytest.fixture
def console(broker: RunningBroker, tmp_path: Path) -> Iterator[ConsoleProcess]:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    words = ("-b", broker.bootstrap_servers, "--command-config", str(config), "--sign-in", "--writes")
    with console_process(*words) as running:
        yield running


def test_nothing_is_shown_before(console: ConsoleProcess) -> None:
    assert console.enter()["sign_in"] is True
    for path in ("overview", "topics", "topic?name=x", "groups", "records?topic=x", "records/tail?topic=x", "acls"):
        assert console.get(path).status == 401, path
    assert console.post("topic/create", {"name": "x"}).status == 401


def test_each_user_is_the_clusters_own(console: ConsoleProcess) -> None:
    console.enter()
    before = console.cookie
    answer = console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    assert answer.status == 200
    assert (answer.json["user"], answer.json["sign_in"]) == ("admin", False)
    assert console.cookie != before, "the session has another name, so that nobody can have prepared it"
    assert console.post("topic/create", {"name": "admins-own"}).status == 200
    told = console.get("acls/check", principal="User:alice", operation="WRITE", name="admins-own").json
    assert (told["allowed"], told["reason"]) == (False, "no ACL allows it")
    assert {user["user"] for user in console.get("users").json["users"]} >= {"admin", "alice"}
    assert console.post("sign-out", {}).json["sign_in"] is True
    assert console.get("topics").status == 401
    console.post("sign-in", {"user": "alice", "password": "alice-secret"})
    assert console.get("topics").json["all"] == 0, "alice may see no topic"
    assert console.post("topic/create", {"name": "alices"}).status == 403
    audit = [(line["user"], line["action"], line["outcome"].split(":")[0]) for line in console.audit()]
    assert audit == [
        ("admin", "sign-in", "done"),
        ("admin", "create-topic", "done"),
        ("admin", "sign-out", "done"),
        ("alice", "sign-in", "done"),
        ("alice", "create-topic", "failed"),
    ]
    assert "secret" not in "".join(console.log)


def test_a_live_tail_ends_with_its_session(console: ConsoleProcess) -> None:
    console.enter()
    console.post("sign-in", {"user": "admin", "password": "admin-secret"})
    console.post("topic/create", {"name": "followed"})
    connection = http.client.HTTPConnection(console.host, timeout=20)
    connection.request("GET", "/api/records/tail?topic=followed", headers={"Cookie": console.cookie})
    response = connection.getresponse()
    assert response.readline() == b"retry: 1000\n"
    console.post("sign-out", {})
    assert response.read() is not None, "the answer comes to its end"
    connection.close()


def test_a_wrong_password_is_refused_and_audited(console: ConsoleProcess) -> None:
    console.enter()
    for user, password in (("admin", "wrong"), ("nobody", "x"), ('a" password="', 'b"; x')):
        answer = console.post("sign-in", {"user": user, "password": password})
        assert answer.status == 401
        assert answer.error == "the cluster does not know this user, or the password is another"
    assert [line["outcome"] for line in console.audit()] == ["refused"] * 3
    assert console.get("topics").status == 401


WORDS = ["plain", 'with "quotes"', "back\\slash\\", "line\nend\r", 'x"; required username="admin', "ü€"]


@pytest.mark.parametrize("text", WORDS)
def test_any_name_and_password_stays_one_word(text: str) -> None:
    base = ClientProperties({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    entry = parse_jaas(user_properties(base, text, text)["sasl.jaas.config"].value)
    assert dict(entry.options) == {"username": text, "password": text}


def test_sessions_end_when_they_are_not_used() -> None:
    now = 0.0
    sessions = Sessions(clock=lambda: now)
    session = sessions.begin(None)
    now = IDLE_SECONDS
    assert sessions.find(session.id) is session
    now = 2 * IDLE_SECONDS + 1
    assert sessions.find(session.id) is None
    assert sessions.find(None) is None
    first = sessions.begin(None)
    for _ in range(MAX_SESSIONS):
        now += 1
        sessions.begin(None)
    assert sessions.find(first.id) is None
