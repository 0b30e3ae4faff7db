"""Gains and losses by a rule, as they are seen before."""

from __future__ import annotations

from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.tools.console.access_preview import consequences

KNOWN = ("orders", "orders-eu", "payments")


def rule(
    principal: str,
    operation: AclOperation,
    name: str = "orders",
    *,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return Acl(ResourceType.TOPIC, name, pattern, principal, host, operation, permission)


def told(
    before: list[Acl], changed: Acl, *, host: str = "", allow_everyone: bool = False
) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    """The outcome of adding a rule, or of removing one that is there."""
    after = [each for each in before if each != changed] if changed in before else [*before, changed]
    found = consequences(before, after, changed, KNOWN, host=host, allow_everyone=allow_everyone)
    return [(each.principal, each.operation.name, each.gains, each.names) for each in found]


def test_reading_implies_describing_and_what_is_had_already_is_not_gained() -> None:
    read = rule("User:ann", AclOperation.READ)
    assert told([], read) == [("User:ann", "READ", True, ("orders",)), ("User:ann", "DESCRIBE", True, ("orders",))]
    assert told([rule("User:ann", AclOperation.DESCRIBE)], read) == [("User:ann", "READ", True, ("orders",))]
    assert told([rule("User:ann", AclOperation.ALL)], read) == []


def test_rules_of_an_address_count_for_who_comes_from_there() -> None:
    read, denied = rule("User:ann", AclOperation.READ), rule("User:ann", AclOperation.READ, deny=True, host="10.0.0.7")
    assert ("User:ann", "READ", True, ("orders",)) in told([denied], read)
    assert not [each for each in told([denied], read, host="10.0.0.7") if each[1] == "READ"]


def test_what_another_rule_allows_is_not_lost() -> None:
    read, everything = rule("User:ann", AclOperation.READ), rule("User:ann", AclOperation.ALL)
    assert told([read, everything], read) == []
    lost = {operation for _, operation, gains, _ in told([read, everything], everything) if not gains}
    assert "WRITE" in lost and not {"READ", "DESCRIBE"} & lost


def test_a_rule_for_everybody_is_one_for_those_who_have_rules_too() -> None:
    before = [rule("User:ann", AclOperation.WRITE)]
    denied = told(before, rule("User:*", AclOperation.WRITE, deny=True))
    assert denied == [("User:ann", "WRITE", False, ("orders",))]
    allowed = told(before, rule("User:*", AclOperation.READ))
    assert ("everybody else", "READ", True, ("orders",)) in allowed and (
        "User:ann",
        "READ",
        True,
        ("orders",),
    ) in allowed


def test_a_prefix_names_the_topics_that_there_are_and_those_to_come() -> None:
    found = told([rule("User:ann", AclOperation.READ)], rule("User:ann", AclOperation.READ, "orders", prefixed=True))
    assert found[0] == ("User:ann", "READ", True, ("orders-eu", "any other that begins with orders"))
    everywhere = told([], rule("User:ann", AclOperation.READ, "*"))
    assert everywhere[0][3] == (*KNOWN, "any other")


def test_the_first_rule_of_a_topic_shuts_out_those_who_needed_none() -> None:
    found = told([], rule("User:ann", AclOperation.ALL), allow_everyone=True)
    assert {each[0] for each in found} == {"everybody else"} and not any(each[2] for each in found)
    last = rule("User:ann", AclOperation.READ)
    assert ("everybody else", "WRITE", True, ("orders",)) in told([last], last, allow_everyone=True)


def test_a_rule_for_a_host_is_asked_from_there() -> None:
    assert told([], rule("User:ann", AclOperation.WRITE, host="10.0.0.7"))[0][:3] == ("User:ann", "WRITE", True)
