"""Access, to be looked at: ACLs, whether somebody may do something and by which rule, users, quotas."""

from __future__ import annotations

from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.acls import OPERATIONS, describe_acls
from kbroker.client.quotas import describe_quotas
from kbroker.client.records_io.json_types import Json
from kbroker.client.users import describe_users
from kbroker.security.authorizer.acls import AclFilter
from kbroker.security.authorizer.standard import StandardAuthorizer
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.security.principal import parse_principal
from kbroker.tools.console.call import Call, RequestRefused

_MAX_ACLS: Final = 5000

_NOTE: Final = (
    "Super users may do everything, and where the brokers have allow.everyone.if.no.acl.found=true everybody may do"
    " what no rule is about: the rules tell neither."
)


async def list_acls(call: Call) -> Json:
    """All rules, of which each word of the filter is in a part."""
    words = call.text("filter", "").lower().split()
    found = await call.ask(lambda client: describe_acls(client, AclFilter()))
    rows: list[Json] = []
    for acl in found:
        row: list[str] = [
            acl.principal,
            acl.permission.name,
            acl.operation.name,
            acl.resource_type.name,
            acl.pattern_type.name,
            acl.resource_name,
            acl.host,
        ]
        if all(any(word in part.lower() for part in row) for word in words):
            rows.append(list(row))
    return {"rows": rows[:_MAX_ACLS], "total": len(rows), "all": len(found)}


async def list_operations(call: Call) -> Json:
    """The operations that there are rules for, by type of resource."""
    return {kind.name: [operation.name for operation in operations] for kind, operations in OPERATIONS.items()}


async def check_access(call: Call) -> Json:
    """Whether somebody may do something by the rules, and which rule says so.

    Super users and ``allow.everyone.if.no.acl.found`` are known to the brokers alone, which the answer says.
    """
    try:
        principal = parse_principal(call.text("principal"))
    except ValueError:
        raise RequestRefused(400, "a principal is of the form User:alice") from None
    kind = ResourceType[call.choice("type", tuple(each.name for each in OPERATIONS), "TOPIC")]
    operation = AclOperation[call.choice("operation", tuple(each.name for each in OPERATIONS[kind]), "READ")]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else call.text("name")
    host = call.text("host", "") or "127.0.0.1"
    found = await call.ask(lambda client: describe_acls(client, AclFilter()))
    rules = StandardAuthorizer(found)
    allowed, reason = rules.explain(principal, host, operation, kind, name)
    return {"allowed": allowed, "reason": reason, "rules": len(found), "note": _NOTE}


async def list_users(call: Call) -> Json:
    """Users who log in by SCRAM, and quotas; each with the reason where it may not be seen."""
    return await call.ask(_users)


def _users(client: Client) -> Json:
    users: list[Json] = []
    quotas: list[Json] = []
    users_problem = quotas_problem = ""
    try:
        users = [
            {
                "user": credential.user,
                "mechanism": credential.mechanism.name.replace("_", "-"),
                "iterations": credential.iterations,
            }
            for credential in describe_users(client)
        ]
    except ClientError as error:
        users_problem = str(error)
    try:
        quotas = [{"entity": dict(entry.entity), "values": dict(entry.values)} for entry in describe_quotas(client, {})]
    except ClientError as error:
        quotas_problem = str(error)
    return {"users": users, "users_problem": users_problem, "quotas": quotas, "quotas_problem": quotas_problem}
