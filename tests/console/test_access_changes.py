"""Rules, users and quotas changed by the page, with a preview."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.testing import running_broker
from tests.console.console_process import ConsoleProcess, console_process
from tests.patience import eventually

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def ruled() -> Iterator[ConsoleProcess]:
    """A console beside a broker that keeps rules; it may do everything."""
    with running_broker(AUTHORIZED) as broker, console_process("-b", broker.bootstrap_servers, "--writes") as console:
        yield console


def test_a_rule_is_added_and_removed_as_its_preview_says(ruled: ConsoleProcess) -> None:
    rule = {"principal": "User:ann", "operation": "READ", "type": "GROUP", "name": "billing"}
    told = ruled.get("acls/preview", **rule).json
    assert told["rows"][0] == {"principal": "User:ann", "operation": "READ", "gains": True, "names": ["billing"]}
    assert next(row for row in told["open"] if row["principal"] == "everybody else")["gains"] is False
    assert ruled.get("acls/preview", **rule, remove=1).json["note"] == "There is no such rule."
    assert ruled.post("acls/create", rule).status == 200

    def names() -> list[str]:
        return [row[5] for row in ruled.get("acls", filter="billing").json["rows"]]

    eventually(lambda: names() == ["billing"], "the rule is there")
    assert ruled.get("acls/preview", **rule).json["note"] == "There is such a rule already."
    assert ruled.get("acls/preview", **rule, remove=1).json["rows"][0]["gains"] is False
    # From which address somebody comes may matter for other rules.
    for_one = {**rule, "host": "10.0.0.7"}
    assert ruled.get("acls/preview", **for_one).json["rows"] == []
    elsewhere = ruled.get("acls/preview", **rule, remove=1, seen_from="10.0.0.7").json
    assert elsewhere["rows"][0]["gains"] is False
    assert ruled.post("acls/delete", rule).status == 200
    eventually(lambda: names() == [], "the rule is gone")
    assert ruled.post("acls/delete", rule).status == 404


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"principal": "ann", "name": "t"}, "User:alice"),
        ({"principal": "User:ann"}, "name is missing"),
        ({"principal": "User:ann", "name": "t", "operation": "TWO_PHASE_COMMIT"}, "operation has to be one of"),
        ({"principal": "User:ann", "name": "t", "pattern": "MATCH"}, "pattern has to be one of"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(ruled: ConsoleProcess, fields: dict[str, str], told: str) -> None:
    for answer in (ruled.get("acls/preview", **fields), ruled.post("acls/create", fields)):
        assert answer.status == 400 and told in answer.error


def test_passwords_are_set_and_taken_away_and_are_in_no_log(ruled: ConsoleProcess) -> None:
    user = {"user": "bob", "password": "very-secret", "mechanism": "SCRAM-SHA-256"}
    assert ruled.post("user/set", user).json["done"] == "bob can log in by SCRAM-SHA-256"

    def users() -> list[tuple[str, str]]:
        return [(each["user"], each["mechanism"]) for each in ruled.get("users").json["users"]]

    eventually(lambda: ("bob", "SCRAM-SHA-256") in users(), "the user is there")
    gone = {"user": "bob", "mechanism": "SCRAM-SHA-256", "confirm": "bob"}
    assert ruled.post("user/delete", {**gone, "confirm": "bo"}).status == 400
    assert ruled.post("user/delete", {**gone, "mechanism": "SCRAM-SHA-512"}).status == 404
    assert ruled.post("user/delete", gone).status == 200
    eventually(lambda: users() == [], "the user is gone")
    assert "very-secret" not in "".join(ruled.log)


def test_quotas_are_set_changed_and_lifted(ruled: ConsoleProcess) -> None:
    def quotas() -> list[object]:
        return [(each["entity"], each["values"]) for each in ruled.get("users").json["quotas"]]

    whose = {"user": "carol", "client-id": ""}
    assert ruled.post("quota/set", {"entity": whose, "values": {"producer_byte_rate": "1e6"}}).status == 200
    entity = {"client-id": None, "user": "carol"}
    eventually(lambda: quotas() == [(entity, {"producer_byte_rate": 1e6})], "the quota is there")
    for wrong in ("much", "nan", "inf"):
        answer = ruled.post("quota/set", {"entity": whose, "values": {"producer_byte_rate": wrong}})
        assert answer.status == 400 and "has to be a number" in answer.error
    assert ruled.post("quota/set", {"entity": {"group": "g"}, "values": {}}).status == 400
    assert ruled.post("quota/set", {"entity": whose, "values": {"producer_byte_rate": ""}}).status == 200
    eventually(lambda: quotas() == [], "the quota is lifted")
