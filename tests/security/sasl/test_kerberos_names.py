"""``sasl.kerberos.principal.to.local.rules``, compared with what Apache Kafka makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.sasl.kerberos.names import NoShortName, Principal, ShortNamer

FACTS = Path(__file__).parents[2] / "facts" / "kerberos_names.json"

STRICTER = ("there is no group", "cannot follow")
"""Rules that Kafka takes and then fails by, for each principal that they change, are refused at once."""


def named(rules: list[str], realm: str, principal: str) -> str | None:
    namer = ShortNamer(rules, realm)
    try:
        return namer.short_name(Principal.parse(principal))
    except NoShortName:
        return None


def test_rules_are_those_of_kafka() -> None:
    """Random rules and principals, asked of Kafka's own classes by tests/facts/KerberosFacts.java."""
    rows = json.loads(FACTS.read_text())
    names = refused = 0
    for rules, realm, principal, expected in rows:
        try:
            got = named(rules, realm, principal)
        except ValueError as error:
            assert expected is False or any(told in str(error) for told in STRICTER), (rules, str(error))
            refused += 1
            continue
        assert got == expected, (rules, realm, principal)
        names += got is not None
    assert names > 300 and refused > 50


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("alice@EXAMPLE.COM", "alice"),
        ("kafka/node1.example.com@EXAMPLE.COM", "kafka"),
        ("bob@OTHER.COM", None),
        ("a/b/c@EXAMPLE.COM", None),
        ("alice", "alice"),
    ],
)
def test_default_is_for_the_default_realm(principal: str, expected: str | None) -> None:
    assert named(["DEFAULT"], "EXAMPLE.COM", principal) == expected


def test_rules_of_the_manual() -> None:
    rules = [r"RULE:[1:$1@$0](.*@ADMINS\.COM)s/@.*//", "RULE:[2:$1;$2](^.*;admin$)s/;admin$//", "DEFAULT"]
    assert named(rules, "EXAMPLE.COM", "joe@ADMINS.COM") == "joe"
    assert named(rules, "EXAMPLE.COM", "joe/admin@ANY.COM") == "joe"
    assert named(["RULE:[1:$1]/U"], "", "joe@ANY.COM") == "JOE"
    assert named(["RULE:[1:$1]/L"], "", "JOE@ANY.COM") == "joe"


@pytest.mark.parametrize(
    "principal", [r"kafka\/evil@EXAMPLE.COM", r"admin\@EXAMPLE.COM@OTHER.COM", r"a\\b@EXAMPLE.COM"]
)
def test_an_escaped_component_is_nobody_else(principal: str) -> None:
    """Kafka cuts a component that holds / or @ itself, and takes ``kafka\\/evil`` for ``kafka``-something."""
    assert named(["DEFAULT", "RULE:[1:$1]", "RULE:[2:$1]"], "EXAMPLE.COM", principal) is None


@given(st.text(max_size=40), st.lists(st.text("RULEDFAT:[12:$0](.*)s/a/b/gLU@", max_size=25), max_size=3))
def test_nothing_else_is_raised_and_no_name_is_a_principal(principal: str, rules: list[str]) -> None:
    try:
        name = named([*rules, "DEFAULT", "RULE:[2:$1]"], "R", principal)
    except ValueError:
        return
    assert name is None or "@" not in principal or not {"/", "@"} & set(name)
