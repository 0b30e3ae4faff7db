"""Logins that rules in Python judge, as stock clients meet them: PLAIN, SCRAM and OAUTHBEARER."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import trio

from kbroker.errors import FatalError
from kbroker.node.rules.scram import RuleScramServer, ScramRule
from kbroker.rules import (
    Action,
    Login,
    Password,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    Token,
    TokenUser,
    settings,
)
from kbroker.security.sasl.scram import ScramClient, ScramServer, UnknownUsers
from kbroker.testing import RunningBroker, running_broker
from tests.node.rules_harness import Delivered, Seen, exits, fails, gets_in, logged_in
from tests.patience import LONG_MS, eventually

# --- Logins ---------------------------------------------------------------------------------------------------------


def check(login: Login) -> str | None:
    """Passwords are names backwards; ``bob`` is another in the cluster."""
    if login.password != login.username[::-1]:
        return None
    return {"bob": "robert"}.get(login.username, login.username)


async def check_later(login: Login) -> str | None:
    """The same rule as ``check``, as a coroutine."""
    return check(login)


@pytest.mark.parametrize("rule", [check, check_later])
def test_logins_are_checked_by_a_rule(rule: Any) -> None:
    asked: list[Action] = []

    def authorize(action: Action) -> bool:
        asked.append(action)
        return True

    with running_broker(security="sasl_plaintext", authenticator=rule, authorizer=authorize) as broker:
        assert logged_in(broker, "alice", "ecila") and logged_in(broker, "bob", "bob")
        assert not logged_in(broker, "alice", "alice-secret") and not logged_in(broker, "eve", "x")
        properties = broker.librdkafka_properties("alice", mechanism="PLAIN")
        send = Delivered(broker, **{**properties, "sasl.username": "bob", "sasl.password": "bob"})
        assert send("t") is None
        assert {str(action.principal) for action in asked if action.api == "Produce"} == {"User:robert"}
        assert not [record for record in broker.logs if "ecila" in record.getMessage()]


@pytest.mark.parametrize("rule", [fails, exits, lambda login: 5, lambda login: "", lambda login: "a\nb"])
def test_a_hostile_authenticator_lets_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", authenticator=rule) as broker:
        assert not logged_in(broker, "alice", "alice-secret")
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "alice-secret" not in told[0]
        assert not [record for record in broker.logs if record.exc_info]


def test_an_authenticator_that_hangs_holds_up_nobody_else() -> None:
    gate = threading.Event()

    def hang(login: Login) -> bool:
        if login.username == "stuck":
            gate.wait()
        return True

    hang.timeout_seconds = 2.0  # type: ignore[attr-defined]
    try:
        with running_broker(security="sasl_plaintext", authenticator=hang) as broker:
            assert not logged_in(broker, "stuck", "x") and logged_in(broker, "alice", "x")
    finally:
        gate.set()


# --- Credentials of SCRAM -------------------------------------------------------------------------------------------

SCRAM_USERS = {
    mechanism: {"robert": ScramCredential.from_password(mechanism, "bob", iterations=8192)}
    for mechanism in ScramMechanism
}


def credential(login: ScramLogin) -> ScramCredential | None:
    return SCRAM_USERS[login.mechanism].get(login.username)


async def credential_later(login: ScramLogin) -> ScramCredential | None:
    return credential(login)


def weak(login: ScramLogin) -> ScramCredential:
    return replace(SCRAM_USERS[login.mechanism]["robert"], iterations=1)


def of_another_hash(login: ScramLogin) -> ScramCredential:
    [other] = [each for each in ScramMechanism if each is not login.mechanism]
    return SCRAM_USERS[other]["robert"]


def scram_logged_in(broker: RunningBroker, mechanism: ScramMechanism, user: str, password: str) -> bool:
    """Whether a user gets in by SCRAM."""
    return gets_in(broker, mechanism.mechanism_name, user, password, "invalid credentials")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("rule", [credential, credential_later])
def test_users_of_scram_are_those_that_a_rule_knows(rule: Any, mechanism: ScramMechanism) -> None:
    asked: list[Action] = []

    def authorize(action: Action) -> bool:
        asked.append(action)
        return True

    with running_broker(security="sasl_plaintext", scram_credentials=rule, authorizer=authorize) as broker:
        assert scram_logged_in(broker, mechanism, "robert", "bob")
        properties = broker.librdkafka_properties("alice", mechanism=mechanism.mechanism_name)
        send = Delivered(broker, **{**properties, "sasl.username": "robert", "sasl.password": "bob"})
        assert send("t") is None
        assert {str(action.principal) for action in asked if action.api == "Produce"} == {"User:robert"}
        # Alice is a user of the cluster, and the rule does not know her.
        assert not scram_logged_in(broker, mechanism, "alice", "alice-secret")
        assert not scram_logged_in(broker, mechanism, "robert", "alice-secret")


@pytest.mark.parametrize("rule", [fails, exits, lambda login: True, lambda login: "bob", weak, of_another_hash])
def test_hostile_credentials_let_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", scram_credentials=rule) as broker:
        assert not scram_logged_in(broker, ScramMechanism.SCRAM_SHA_256, "robert", "bob")
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "the client is not let in" in told[0]
        assert not [record for record in broker.logs if record.exc_info]


def test_asking_for_names_does_not_change_what_users_who_do_not_exist_seem_to_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody has proved anything, so nobody may learn who exists."""
    mechanism = ScramMechanism.SCRAM_SHA_256

    def shown(rule: ScramRule, name: str) -> tuple[str, int]:
        """The salt and the iterations that a client is shown."""
        unknown = UnknownUsers(mechanism, lambda: {rule.form: 1}, lambda: b"of the cluster")
        server = RuleScramServer(rule, "", lambda *_: None, lambda found: ScramServer(mechanism, found, unknown))
        answer = trio.run(server.respond, ScramClient(mechanism, name, "x").first()).decode()
        salt, iterations = answer.split(",")[1:3]
        return salt, int(iterations.removeprefix("i="))

    for declared, warned in ((4096, 1), (8192, 0)):
        caplog.clear()
        rule = ScramRule(settings(iterations=declared)(lambda login: credential(login)), "python:m:f", "L", mechanism)
        before = shown(rule, "nobody")
        assert before[1] == declared
        for _ in range(20):
            assert shown(rule, "robert")[1] == 8192
        assert shown(rule, "nobody") == before
        assert len(caplog.messages) == warned
    alike = ScramRule(settings(salt_bytes=7)(lambda login: credential(login)), "python:m:f", "L", mechanism)
    assert alike.form.salt_bytes == 7 and alike.form.iterations == 4096


@pytest.mark.parametrize("declared", [{"iterations": 4095}, {"iterations": 8192.5}, {"salt_bytes": 1 << 20}])
def test_a_form_that_no_credential_has_is_an_error_at_the_start(declared: dict[str, float]) -> None:
    rule = settings(**declared)(lambda login: credential(login))
    with pytest.raises(FatalError, match=r"^python:m:f: \w+=[0-9.]+: a whole number from \d+ to \d+$"):
        ScramRule(rule, "python:m:f", "L", ScramMechanism.SCRAM_SHA_256)


# --- Tokens ---------------------------------------------------------------------------------------------------------


def validate(token: Token) -> TokenUser | None:
    """Tokens of this test are good for a minute."""
    name, _, secret = token.value.reveal().partition("~")
    return TokenUser(name, time.time() + 60) if Password(secret) == "geheim" else None


def sent_with_token(broker: RunningBroker, token: str) -> str | None:
    """Send a record with a token; the name of the error."""
    ck = pytest.importorskip("confluent_kafka")
    failures: list[Any] = []
    properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 60),
        "error_cb": failures.append,
        "message.timeout.ms": LONG_MS,
    }
    producer = ck.Producer(properties)
    delivered: list[Any] = []
    producer.produce("t", b"v", on_delivery=lambda error, _: delivered.append(error))
    eventually(lambda: (producer.poll(0.05), delivered or failures)[1], "the client hears of its token")
    producer.purge()
    producer.poll(0)
    return None if delivered and delivered[0] is None else failures[0].name()


def test_tokens_are_judged_by_a_rule() -> None:
    seen = Seen()
    with running_broker(security="sasl_plaintext", token_validator=validate, authorizer=seen) as broker:
        assert sent_with_token(broker, "alice~geheim") is None and seen.producers == {"User:alice"}
        assert sent_with_token(broker, "alice~wrong") == "_AUTHENTICATION"


@pytest.mark.parametrize("rule", [fails, exits, lambda token: True, lambda token: TokenUser("a", float("inf"))])
def test_a_hostile_token_validator_lets_nobody_in(rule: Any) -> None:
    with running_broker(security="sasl_plaintext", token_validator=rule) as broker:
        assert sent_with_token(broker, "alice~geheim") == "_AUTHENTICATION"
        told = [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]
        assert len(told) == 1 and "geheim" not in told[0]
