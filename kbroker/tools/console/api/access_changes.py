"""Access changed, with ``--writes``: rules after a preview of who gains or loses what, users' passwords, quotas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from kbroker.client import Client
from kbroker.client.acls import OPERATIONS, create_acls, delete_acls, describe_acls
from kbroker.client.quotas import alter_quotas
from kbroker.client.records_io.json_types import Json
from kbroker.client.users import DEFAULT_ITERATIONS, describe_users, remove_credentials, set_password
from kbroker.security.authorizer.acls import Acl, AclFilter
from kbroker.security.authorizer.types import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kbroker.security.principal import parse_principal
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.tools.console.access_preview import Outcome, consequences
from kbroker.tools.console.call import Call, RequestRefused

_MAX_RULES: Final = 5000
"""Rules up to which the consequence of a change is computed: it asks about each principal that they name."""

_ENTITIES: Final = ("user", "client-id", "ip")


def _rule(call: Call) -> Acl:
    """The rule that a request names."""
    try:
        principal = parse_principal(call.text("principal"))
    except ValueError:
        raise RequestRefused(400, "a principal is of the form User:alice, or User:* for everybody") from None
    kind = ResourceType[call.choice("type", tuple(each.name for each in OPERATIONS), "TOPIC")]
    operations = ("ALL", *(each.name for each in OPERATIONS[kind]))
    pattern = PatternType[call.choice("pattern", ("LITERAL", "PREFIXED"), "LITERAL")]
    return Acl(
        kind,
        CLUSTER_NAME if kind is ResourceType.CLUSTER else call.text("name"),
        PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern,
        str(principal),
        call.text("host", "") or "*",
        AclOperation[call.choice("operation", operations, "READ")],
        AclPermission[call.choice("permission", ("ALLOW", "DENY"), "ALLOW")],
    )


def _details(rule: Acl) -> Json:
    return {
        "principal": rule.principal,
        "permission": rule.permission.name,
        "operation": rule.operation.name,
        "type": rule.resource_type.name,
        "pattern": rule.pattern_type.name,
        "name": rule.resource_name,
        "host": rule.host,
    }


async def preview_rule(call: Call) -> Json:
    """The gains and losses by a rule that is added, or with ``remove`` taken away; nothing is changed.

    ``seen_from``: the address of who asks, for another than the rule's host, or one that no rule names.

    No broker tells whether it lets everybody do what no rule is about: ``open`` is what is otherwise where it does, and
    null where that makes no difference.
    """
    rule, remove = _rule(call), call.flag("remove")
    topics = await call.view.catalogue.get() if rule.resource_type is ResourceType.TOPIC else None
    before = await call.ask(lambda client: describe_acls(client, AclFilter()))
    if len(before) > _MAX_RULES:
        raise RequestRefused(409, f"there are more than {_MAX_RULES:,} rules: what one of them changes is not computed")
    if remove is (rule not in before):
        return {"rows": [], "note": "There is no such rule." if remove else "There is such a rule already."}
    after = [each for each in before if each != rule] if remove else [*before, rule]
    known = {each.resource_name for each in before if each.resource_type is rule.resource_type} - {WILDCARD}
    known |= {topic.name for topic in topics.all} if topics is not None else set()
    strict, lenient = await call.compute(
        lambda: [
            consequences(before, after, rule, known, host=call.text("seen_from", ""), allow_everyone=each)
            for each in (False, True)
        ]
    )
    return {"rows": _rows(strict), "open": None if lenient == strict else _rows(lenient), "note": ""}


def _rows(found: Sequence[Outcome]) -> list[Json]:
    return [
        {"principal": each.principal, "operation": each.operation.name, "gains": each.gains, "names": list(each.names)}
        for each in found
    ]


async def create_rule(call: Call) -> Json:
    """Add a rule."""
    rule = _rule(call)

    def create(client: Client) -> None:
        for _, error in create_acls(client, [rule]):
            raise error

    await call.write("create-rule", rule.principal, _details(rule), create)
    return {"done": f"the rule for {rule.principal} is added"}


async def delete_rule(call: Call) -> Json:
    """Take a rule away."""
    rule = _rule(call)
    exact = AclFilter(*rule)

    def delete(client: Client) -> None:
        if not delete_acls(client, [exact]):
            raise RequestRefused(404, "there is no such rule any more")

    await call.write("delete-rule", rule.principal, _details(rule), delete)
    return {"done": f"the rule for {rule.principal} is gone"}


async def set_user(call: Call) -> Json:
    """Give a user, a new one perhaps, a password of one mechanism. Only the salted password leaves the console."""
    user, password = call.text("user"), call.text("password")
    mechanism = _mechanism(call)

    def change(client: Client) -> None:
        set_password(client, user, password, [mechanism], DEFAULT_ITERATIONS)

    await call.write("set-password", user, {"mechanism": mechanism.mechanism_name}, change)
    return {"done": f"{user} can log in by {mechanism.mechanism_name}"}


async def delete_user(call: Call) -> Json:
    """Take a user's credential of one mechanism away; the name has to be given twice."""
    user, mechanism = call.text("user"), _mechanism(call)
    if call.text("confirm", "") != user:
        raise RequestRefused(400, "type the user's name to delete the credential")

    def delete(client: Client) -> None:
        there = [each for each in describe_users(client, [user]) if each.mechanism is mechanism]
        if not there:
            raise RequestRefused(404, f"{user} has no credential of {mechanism.mechanism_name}")
        remove_credentials(client, there)

    await call.write("delete-credential", user, {"mechanism": mechanism.mechanism_name}, delete)
    return {"done": f"{user} can log in by {mechanism.mechanism_name} no more"}


def _mechanism(call: Call) -> ScramMechanism:
    names = tuple(each.mechanism_name for each in ScramMechanism)
    return ScramMechanism[call.choice("mechanism", names, names[-1]).replace("-", "_")]


async def set_quota(call: Call) -> Json:
    """Set quotas of an entity, an empty name being the default; ``values`` maps keys to numbers, empty for no limit."""
    entity = {kind: name or None for kind, name in call.texts("entity").items()}
    if not entity or not entity.keys() <= set(_ENTITIES):
        raise RequestRefused(400, f"a quota is of one of {', '.join(_ENTITIES)}, or of a user and a client-id")
    values: dict[str, float | None] = {}
    for key, text in call.texts("values").items():
        try:
            values[key] = float(text) if text else None
        except ValueError:
            values[key] = math.nan
        if values[key] is not None and not math.isfinite(values[key] or 0):
            raise RequestRefused(400, f"{key} has to be a number such as 1048576")
    target = ", ".join(f"{kind} {name or '(all others)'}" for kind, name in entity.items())
    await call.write("set-quota", target, dict(values), lambda client: alter_quotas(client, entity, values))
    return {"done": f"the quotas of {target} are set"}
