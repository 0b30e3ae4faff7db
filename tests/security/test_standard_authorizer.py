"""The rules of StandardAuthorizer, one by one, and against a model that is written straight from them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.authorizer.acls import Acl, AclFilter, word
from kbroker.security.authorizer.audit import AUDIT_LOG
from kbroker.security.authorizer.standard import MAX_REMEMBERED, StandardAuthorizer
from kbroker.security.authorizer.types import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    AuthorizerNotReady,
    PatternType,
    ResourceType,
)
from kbroker.security.principal import ANONYMOUS, KafkaPrincipal

ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")
HOST = "10.1.2.3"
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def acl(
    permission: AclPermission = ALLOW,
    operation: AclOperation = READ,
    name: str = "t",
    *,
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = LITERAL,
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def allowed(
    *acls: Acl,
    who: KafkaPrincipal = ALICE,
    operation: AclOperation = READ,
    name: str = "t",
    host: str = HOST,
    kind: ResourceType = TOPIC,
    allow_everyone: bool = False,
) -> bool:
    authorizer = StandardAuthorizer(acls, allow_everyone=allow_everyone)
    return authorizer.authorize(who, host, operation, kind, name)


def test_without_an_acl_nothing_is_allowed() -> None:
    assert not allowed()
    assert not allowed(acl(), who=BOB)
    assert not allowed(acl(), name="u")
    assert not allowed(acl(), kind=GROUP)
    assert not allowed(acl(), operation=WRITE)
    assert allowed(acl())


def test_a_denial_comes_before_what_is_allowed() -> None:
    assert not allowed(acl(), acl(DENY))
    assert not allowed(acl(name="*"), acl(DENY))
    assert not allowed(acl(), acl(DENY, name="*"))
    assert not allowed(acl(), acl(DENY, name="", pattern=PREFIXED))
    assert not allowed(acl(), acl(DENY, AclOperation.ALL))
    assert not allowed(acl(), acl(DENY, principal="User:*"))
    assert allowed(acl(), acl(DENY, WRITE))
    assert allowed(acl(), acl(DENY, host="10.1.2.4"))


def test_a_pattern_is_a_name_a_prefix_or_the_wildcard() -> None:
    assert allowed(acl(name="ord", pattern=PREFIXED), name="orders")
    assert allowed(acl(name="orders", pattern=PREFIXED), name="orders")
    assert not allowed(acl(name="orders", pattern=PREFIXED), name="ord")
    assert not allowed(acl(name="ord"), name="orders")
    assert allowed(acl(name="*"), name="orders")
    # As a prefix the wildcard is a star like any other.
    assert not allowed(acl(name="*", pattern=PREFIXED), name="orders")
    assert allowed(acl(name="*", pattern=PREFIXED), name="*orders")


def test_everybody_is_of_the_type_user_and_the_rule_holds_for_all_types() -> None:
    service = KafkaPrincipal("Service", "alice")
    assert allowed(acl(principal="User:*"), who=service)
    assert not allowed(acl(principal="User:alice"), who=service)
    assert not allowed(acl(principal="Service:*"), who=service)
    assert allowed(acl(principal="User:*"), who=ANONYMOUS)
    assert allowed(acl(principal="User:CN=a:b,O=c"), who=KafkaPrincipal("User", "CN=a:b,O=c"))
    assert not allowed(acl(principal="alice"))


@pytest.mark.parametrize("implying", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL])
def test_what_implies_describe(implying: AclOperation) -> None:
    assert allowed(acl(operation=implying), operation=DESCRIBE)
    assert allowed(acl(operation=DESCRIBE), acl(DENY, implying), operation=DESCRIBE) == (implying != AclOperation.ALL)


def test_what_implies_describe_configs() -> None:
    assert allowed(acl(operation=AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE_CONFIGS)
    assert not allowed(acl(operation=AclOperation.ALTER), operation=AclOperation.DESCRIBE_CONFIGS)
    assert not allowed(acl(operation=AclOperation.CREATE), operation=DESCRIBE)
    assert not allowed(acl(operation=DESCRIBE), operation=READ)


def test_super_users_may_do_everything() -> None:
    deny = acl(DENY, AclOperation.ALL, "*", principal="User:*")
    authorizer = StandardAuthorizer([deny], super_users=[ALICE])
    assert authorizer.authorize(ALICE, HOST, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert authorizer.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)
    assert not authorizer.authorize(BOB, HOST, READ, TOPIC, "t")
    assert not authorizer.authorize_by_resource_type(BOB, HOST, WRITE, TOPIC)


def test_a_principal_of_a_subclass_is_what_it_is_called() -> None:
    class Token(KafkaPrincipal):
        """A principal with a delegation token, for example."""

    alice = Token("User", "alice")
    assert StandardAuthorizer([], super_users=[ALICE]).authorize(alice, HOST, READ, TOPIC, "t")
    assert allowed(acl(), who=alice)


def test_everyone_is_allowed_what_has_no_acl() -> None:
    assert allowed(allow_everyone=True)
    assert allowed(acl(name="u"), allow_everyone=True)
    for other in (
        acl(principal="User:bob"),
        acl(name="*", principal="User:bob"),
        acl(name="", pattern=PREFIXED, host="::1"),
        acl(operation=WRITE),
    ):
        assert not allowed(other, allow_everyone=True)


def test_before_the_acls_are_known_it_decides_about_super_users_alone() -> None:
    authorizer = StandardAuthorizer(super_users=[ALICE], allow_everyone=True)
    assert not authorizer.loaded
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert authorizer.authorize_by_resource_type(ALICE, HOST, WRITE, TOPIC)
    with pytest.raises(AuthorizerNotReady):
        authorizer.authorize(BOB, HOST, READ, TOPIC, "t")
    with pytest.raises(AuthorizerNotReady):
        authorizer.authorize_by_resource_type(BOB, HOST, WRITE, TOPIC)
    authorizer.replace([])
    assert authorizer.loaded
    assert authorizer.authorize(BOB, HOST, READ, TOPIC, "t")


def test_a_change_takes_effect_at_once_and_shows_in_the_version() -> None:
    authorizer = StandardAuthorizer([acl()])
    versions = [authorizer.version]
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "t")
    for removed, added, expected in (
        ((), (acl(DENY),), False),
        ((acl(DENY),), (), True),
        ((acl(),), (acl(name="u"),), False),
        ((acl(name="u"),), (acl(name="t", pattern=PREFIXED),), True),
        ((acl(name="t", pattern=PREFIXED),), (), False),
    ):
        authorizer.change(removed, added)
        versions.append(authorizer.version)
        assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "t") is expected
    authorizer.replace([acl()])
    versions.append(authorizer.version)
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "t")
    assert len(set(versions)) == len(versions)
    assert authorizer.count == 1


def test_what_is_remembered_is_bounded() -> None:
    authorizer = StandardAuthorizer([acl(name="t1", pattern=PREFIXED)])
    for number in range(MAX_REMEMBERED + 100):
        name = f"t{number}"
        assert authorizer.authorize(ALICE, HOST, READ, TOPIC, name) is name.startswith("t1")
        authorizer.authorize_by_resource_type(ALICE, f"10.0.0.{number}", READ, TOPIC)
        assert max(len(authorizer._decisions), len(authorizer._decisions_by_type)) <= MAX_REMEMBERED
    before = len(authorizer._decisions)
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "t1" + "x" * 30_000)
    assert len(authorizer._decisions) == before


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(name="a")], True),
        ([acl(name="a", pattern=PREFIXED)], True),
        ([acl(name="*")], True),
        ([acl(name="*"), acl(DENY, name="*")], False),
        ([acl(name="a"), acl(DENY, name="a")], False),
        ([acl(name="a"), acl(DENY, name="b")], True),
        ([acl(name="abc"), acl(DENY, name="ab", pattern=PREFIXED)], False),
        ([acl(name="abc", pattern=PREFIXED), acl(DENY, name="ab", pattern=PREFIXED)], False),
        ([acl(name="ab", pattern=PREFIXED), acl(DENY, name="abc", pattern=PREFIXED)], True),
        # A denial of one name leaves all others with the prefix.
        ([acl(name="a", pattern=PREFIXED), acl(DENY, name="a")], True),
        ([acl(name="a"), acl(DENY, name="*", principal="User:bob")], True),
        ([acl(name="a", host="10.0.0.0/8")], True),
        ([acl(name="a", host="11.0.0.0/8")], False),
        ([acl(operation=AclOperation.ALL)], True),
        ([acl(operation=WRITE)], False),
        ([acl(kind=GROUP)], False),
    ],
)
def test_whether_there_may_be_a_resource(acls: list[Acl], expected: bool) -> None:
    authorizer = StandardAuthorizer(acls)
    assert authorizer.authorize_by_resource_type(ALICE, HOST, READ, TOPIC) is expected
    assert authorizer.authorize_by_resource_type(ALICE, HOST, READ, TOPIC) is expected


def test_for_any_resource_of_a_type_nothing_is_implied() -> None:
    """As in Kafka: DESCRIBE of a topic by its name follows from READ, but not DESCRIBE of any topic."""
    authorizer = StandardAuthorizer([acl(name="a")])
    assert authorizer.authorize(ALICE, HOST, DESCRIBE, TOPIC, "a")
    assert not authorizer.authorize_by_resource_type(ALICE, HOST, DESCRIBE, TOPIC)


def test_filters() -> None:
    rule = acl(name="orders")
    prefix = acl(name="ord", pattern=PREFIXED)
    star = acl(name="*")
    rules = [rule, prefix, star]

    def found(**fields: object) -> list[Acl]:
        return [each for each in rules if AclFilter(**fields).matches(each)]  # type: ignore[arg-type]

    match = PatternType.MATCH
    assert found() == found(pattern_type=match) == rules
    assert found(resource_name="orders") == [rule]
    assert found(resource_name="ord") == [prefix]
    assert found(resource_name="ord", pattern_type=LITERAL) == []
    assert found(resource_name="orders", pattern_type=match) == rules
    assert found(resource_name="ord", pattern_type=match) == [prefix, star]
    assert found(resource_name="or", pattern_type=match) == [star]
    assert found(pattern_type=PREFIXED) == [prefix]
    assert found(resource_type=GROUP) == found(principal="User:bob") == found(host="::1") == []
    assert found(operation=WRITE) == found(permission=DENY) == []
    assert found(operation=READ, permission=ALLOW, host="*", principal="User:alice", resource_type=TOPIC) == rules
    assert found(resource_type=word(ResourceType, 99)) == []


def test_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    deny = acl(DENY, name="t", host="10.0.0.0/8")
    authorizer = StandardAuthorizer([deny, acl(name="u")], super_users=[BOB])
    caplog.set_level(logging.INFO, AUDIT_LOG)
    authorizer.audit(False, ALICE, HOST, READ, TOPIC, "t", "Fetch")
    authorizer.audit(False, ALICE, "::1", READ, TOPIC, "v\nDenied: nothing", "Fetch")
    authorizer.audit(True, ALICE, HOST, READ, TOPIC, "u", "Fetch")
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "kbroker.authorizer",
            "INFO",
            "Denied: User:alice from 10.1.2.3, READ on TOPIC:t for Fetch: denied by the ACL DENY READ for User:alice "
            "from 10.0.0.0/8 on TOPIC:LITERAL:t",
        ),
        (
            "kbroker.authorizer",
            "INFO",
            "Denied: User:alice from 0:0:0:0:0:0:0:1, READ on TOPIC:'v\\nDenied: nothing' for Fetch: no ACL allows it",
        ),
    ]
    caplog.clear()
    caplog.set_level(logging.DEBUG, AUDIT_LOG)
    authorizer.audit(True, ALICE, HOST, DESCRIBE, TOPIC, "u", "Metadata")
    authorizer.audit(True, BOB, HOST, DESCRIBE, TOPIC, "x" * 10_000, "Metadata")
    first, second = [each.getMessage() for each in caplog.records]
    assert first.endswith("allowed by the ACL ALLOW READ for User:alice from * on TOPIC:LITERAL:u")
    assert second.endswith("xxx... for Metadata: super user") and len(second) < 400


# --- Against a model --------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "hardcode", "h", "har*"])
PRINCIPALS = [ALICE, BOB, KafkaPrincipal("Service", "alice")]
HOSTS = ["10.1.2.3", "10.9.9.9", "192.168.1.1", "::1"]
OPERATIONS = st.sampled_from([op for op in AclOperation if op > AclOperation.ANY])
ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([TOPIC, GROUP]),
    resource_name=NAMES,
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*", "Service:alice"]),
    host=st.sampled_from(["*", "10.1.2.3", "10.1.0.0/16", "0:0:0:0:0:0:0:1", "::/0", "10.0.0.0/99"]),
    operation=OPERATIONS,
    permission=st.sampled_from([ALLOW, DENY]),
)


def model_host(pattern: str, host: str) -> bool:
    return {
        "*": True,
        "10.1.2.3": host == "10.1.2.3",
        "10.1.0.0/16": host.startswith("10.1."),
        "0:0:0:0:0:0:0:1": host == "::1",
        "::/0": host == "::1",
        "10.0.0.0/99": False,
    }[pattern]


def model(rules: set[Acl], who: KafkaPrincipal, host: str, operation: AclOperation, name: str, everyone: bool) -> bool:
    of_resource = [
        rule
        for rule in rules
        if rule.resource_type == TOPIC
        and (
            name.startswith(rule.resource_name) if rule.pattern_type == PREFIXED else rule.resource_name in (name, "*")
        )
    ]
    if not of_resource:
        return everyone
    mine = [
        rule
        for rule in of_resource
        if rule.principal in (f"{who.principal_type}:{who.name}", "User:*") and model_host(rule.host, host)
    ]
    if any(rule.permission == DENY and rule.operation in (operation, AclOperation.ALL) for rule in mine):
        return False
    enough = {operation, AclOperation.ALL}
    if operation == DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    return any(rule.permission == ALLOW and rule.operation in enough for rule in mine)


def model_by_type(rules: set[Acl], who: KafkaPrincipal, host: str, operation: AclOperation, everyone: bool) -> bool:
    if model(rules, who, host, operation, "hardcode", everyone):
        return True
    mine = [
        rule
        for rule in rules
        if rule.resource_type == TOPIC
        and rule.principal in (f"{who.principal_type}:{who.name}", "User:*")
        and model_host(rule.host, host)
        and rule.operation in (operation, AclOperation.ALL)
    ]
    denying = [rule for rule in mine if rule.permission == DENY]

    def covers(deny: Acl, rule: Acl) -> bool:
        if deny.pattern_type == LITERAL:
            return deny.resource_name == "*" or (
                rule.pattern_type == LITERAL and rule.resource_name == deny.resource_name
            )
        if rule.pattern_type == LITERAL and rule.resource_name == "*":
            return False
        return rule.resource_name.startswith(deny.resource_name)

    return any(rule.permission == ALLOW and not any(covers(deny, rule) for deny in denying) for rule in mine)


@given(
    st.lists(st.tuples(st.booleans(), ACLS), max_size=12),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    OPERATIONS,
    NAMES,
    st.booleans(),
)
def test_it_decides_as_the_model(
    changes: list[tuple[bool, Acl]], who: KafkaPrincipal, host: str, operation: AclOperation, name: str, everyone: bool
) -> None:
    """After any changes, and whatever was asked before them."""
    authorizer = StandardAuthorizer([], allow_everyone=everyone)
    rules: set[Acl] = set()
    for is_addition, rule in changes:
        if is_addition and rule not in rules:
            authorizer.change((), [rule])
            rules.add(rule)
        elif not is_addition and rules:
            removed = rule if rule in rules else min(rules)
            authorizer.change([removed], ())
            rules.discard(removed)
        assert authorizer.authorize(who, host, operation, TOPIC, name) is model(
            rules, who, host, operation, name, everyone
        )
        assert authorizer.authorize_by_resource_type(who, host, operation, TOPIC) is model_by_type(
            rules, who, host, operation, everyone
        )
    assert authorizer.count == len(rules)


@pytest.mark.parametrize("unknown", [PatternType.UNKNOWN, PatternType.ANY, PatternType.MATCH])
def test_a_pattern_of_a_later_release_allows_nothing_and_denies_by_its_prefix(unknown: PatternType) -> None:
    allowing = acl(name="t", pattern=unknown)
    denying = acl(DENY, name="t", pattern=unknown)
    authorizer = StandardAuthorizer([allowing])
    for name in ("t", "tea"):
        assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, name)
    assert not authorizer.authorize_by_resource_type(ALICE, HOST, READ, TOPIC) and authorizer.count == 1
    authorizer.change((), [denying, acl(name="t", pattern=PREFIXED)])
    assert not authorizer.authorize(ALICE, HOST, READ, TOPIC, "tea") and authorizer.count == 3
    authorizer.change([allowing, denying], ())
    assert authorizer.authorize(ALICE, HOST, READ, TOPIC, "tea") and authorizer.count == 1
