"""``kbroker acl``: who may do what, in the words of ``kafka-acls``."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kbroker.security.authorizer.types import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kbroker.security.principal import USER_TYPE
from kbroker.tools.cli.common import add_cluster_arguments, add_yes, cluster, confirm_change, report_failures
from kbroker.tools.cli.output import print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError, add_repeated

if TYPE_CHECKING:
    from kbroker.security.authorizer.acls import Acl, AclFilter

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Options (with - for _) that name resources of a type."""

_OPERATIONS = tuple(
    operation.name.lower().replace("_", "-")
    for operation in AclOperation
    if operation not in (AclOperation.UNKNOWN, AclOperation.ANY)
)
_PATTERNS = {
    "match": PatternType.MATCH,
    "literal": PatternType.LITERAL,
    "prefixed": PatternType.PREFIXED,
    "any": PatternType.ANY,
}

_ADD_DETAILS = """\
A denial goes before any permission. READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes
DESCRIBE_CONFIGS. Examples:

  kbroker acl add --allow User:alice --operation read --topic orders
  kbroker acl add --allow User:alice --producer --topic orders- --prefix
  kbroker acl add --allow User:bob --consumer --topic orders --group billing
  kbroker acl add --deny User:bob --host 10.0.0.7 --topic '*'"""

_DELETE_DETAILS = """\
It deletes the rules that have all of the parts that are given, and shows them before it asks. With the same
options as `kbroker acl add` it takes back what that has added."""


def _add_resources(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--topic", metavar="TOPIC", help="a topic, or * for all")
    add_repeated(parser, "--group", metavar="GROUP", help="a group, or * for all")
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    add_repeated(parser, "--transactional-id", metavar="ID", help="a transactional id, or * for all")
    add_repeated(parser, "--delegation-token", metavar="TOKEN", help="a delegation token's id, or * for all")
    add_repeated(parser, "--user-principal", metavar="PRINCIPAL", help="a principal, as a resource, or * for all")


def _add_parts(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--operation", metavar="OPERATION", type=_operation, help=f"one of {', '.join(_OPERATIONS)}")
    add_repeated(parser, "--host", metavar="ADDRESS", help="of the client")


def _operation(text: str) -> AclOperation:
    word = text.lower().replace("_", "-")
    if word not in _OPERATIONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_OPERATIONS)}")
    return AclOperation[word.upper().replace("-", "_")]


def _principal(text: str) -> str:
    """``User:alice``; a name without a type is a user's."""
    kind, colon, name = text.partition(":")
    if (colon and not (kind and name)) or not text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form User:NAME")
    return text if colon else f"User:{text}"


# --- list -----------------------------------------------------------------------------------------------------------


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_resources(parser)
    parser.add_argument(
        "--pattern",
        choices=_PATTERNS,
        default="match",
        help="rules for a name: all that hold for it (match, the default), those with exactly this name"
        " (literal), those for names that begin with it (prefixed), or both of these (any)",
    )
    add_repeated(parser, "--principal", metavar="PRINCIPAL", type=_principal)
    _add_parts(parser)
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.client.acls import describe_acls
    from kbroker.security.authorizer.acls import AclFilter

    resources: list[tuple[ResourceType, str | None]] = [*_resources(arguments)] or [(ResourceType.ANY, None)]
    pattern = _PATTERNS[arguments.pattern]
    filters = [
        AclFilter(kind, name, PatternType.ANY if name is None else pattern, principal, host, operation)
        for kind, name in resources
        for principal in arguments.principal or [None]
        for host in arguments.host or [None]
        for operation in arguments.operation or [AclOperation.ANY]
    ]
    with cluster(arguments) as client:
        found = sorted({acl for each in filters for acl in describe_acls(client, each)})
    if arguments.json:
        print_json([_document(acl) for acl in found])
    else:
        print_table(*_table(found), styles=_styles(found), wrap=("name", "principal"))
    return 0


def _document(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _table(acls: Iterable[Acl]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            acl.resource_type.name.lower(),
            acl.resource_name,
            acl.pattern_type.name.lower(),
            acl.principal,
            acl.host,
            acl.permission.name.lower(),
            acl.operation.name.lower(),
        ]
        for acl in acls
    ]
    return ["resource", "name", "pattern", "principal", "host", "permission", "operation"], rows


def _styles(acls: Sequence[Acl]) -> dict[int, str]:
    return {index: "red" for index, acl in enumerate(acls) if acl.permission is AclPermission.DENY}


# --- add and delete -------------------------------------------------------------------------------------------------


def _rule_arguments(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--allow", metavar="PRINCIPAL", type=_principal, help="User:NAME, or User:* for all")
    parser.add_argument(
        "--deny", action="append", default=[], type=_principal, metavar="PRINCIPAL", help="as --allow, to forbid it"
    )
    _add_parts(parser)
    _add_resources(parser)
    parser.add_argument(
        "--prefix", "--prefixed", action="store_true", help="everything whose name begins with those that are given"
    )
    parser.add_argument(
        "--producer",
        action="store_true",
        help="what a producer needs: write, describe and create for --topic, write and describe for --transactional-id",
    )
    parser.add_argument(
        "--consumer", action="store_true", help="what a consumer needs: read and describe for --topic, read for --group"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _rule_arguments(parser)
    add_repeated(
        parser,
        "--principal-type",
        metavar="TYPE",
        help="type beside User that principals have here, by a principal builder of your own",
    )
    add_cluster_arguments(parser)


def _add(arguments: argparse.Namespace) -> int:
    from kbroker.client.acls import create_acls
    from kbroker.security.authorizer.acls import Acl

    _check_convenience(arguments)
    principals = [(AclPermission.ALLOW, name) for name in arguments.allow]
    principals += [(AclPermission.DENY, name) for name in arguments.deny]
    if not principals:
        raise UsageError("give whom it is for: --allow or --deny")
    if not _resources(arguments):
        raise UsageError("give what it is for: --topic, --group, --cluster, --transactional-id ...")
    _check_principal_types(arguments)
    _check_topics(arguments)
    _check_hosts(arguments)
    pattern = PatternType.PREFIXED if arguments.prefix else PatternType.LITERAL
    acls = [
        # There is one cluster, and its name is whole.
        Acl(
            kind,
            name,
            PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern,
            principal,
            host,
            operation,
            permission,
        )
        for kind, name, operation in _operations(arguments)
        for permission, principal in principals
        for host in arguments.host or [WILDCARD]
    ]
    with cluster(arguments) as client:
        refused = create_acls(client, acls)
    not_added = {refused_acl for refused_acl, _ in refused}
    added = [acl for acl in acls if acl not in not_added]
    if arguments.json:
        print_json([_document(acl) for acl in added])
    for acl in () if arguments.json else added:
        print(_sentence(acl))
    return report_failures([error for _, error in refused])


def _check_principal_types(arguments: argparse.Namespace) -> None:
    """`UsageError` for a rule that would hold for nobody, since no client's principal has its type."""
    known = {USER_TYPE, *arguments.principal_type}
    for principal in arguments.allow + arguments.deny:
        kind, _, name = principal.partition(":")
        if kind not in known:
            meant = f"{USER_TYPE}:{name if kind.isalpha() else principal}"
            raise UsageError(
                f"{principal}: no client is of the type {kind}; did you mean {meant}?"
                f" (--principal-type {kind} if a principal builder of yours makes such principals)"
            )


def _check_hosts(arguments: argparse.Namespace) -> None:
    """`UsageError` for a rule that would hold for no client: nodes compare addresses, in the form that Java prints."""
    for host in arguments.host:
        if host == WILDCARD or "/" in host:
            continue
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise UsageError(f"--host {host!r}: rules are for addresses, such as 10.0.0.7; names never match") from None
        if address.version == 6:
            printed = ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
            if host != printed:
                raise UsageError(f"--host {host!r}: an address matches in the form that Java prints: {printed}")


def _check_topics(arguments: argparse.Namespace) -> None:
    """`UsageError` for a rule that would hold for no topic, since no topic can have such a name."""
    from kbroker.raft_metadata.topics import topic_name_problem

    for name in arguments.topic:
        if name == WILDCARD and arguments.prefix:
            raise UsageError("--topic '*' is for all topics: leave --prefix out")
        is_begin = arguments.prefix and name in (".", "..")
        if name == WILDCARD or is_begin or topic_name_problem(name) is None:
            continue
        stem = name.rstrip(WILDCARD)
        if stem != name and topic_name_problem(stem) is None:
            raise UsageError(f"--topic {name!r}: no topic can have this name; did you mean --topic {stem} --prefix?")
        raise UsageError(f"--topic {name!r}: no topic can have this name: only letters, digits, '.', '_' and '-'")


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _rule_arguments(parser)
    add_yes(parser)
    add_cluster_arguments(parser)


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.client.acls import delete_acls, describe_acls

    filters = list(_filters(arguments))
    with cluster(arguments) as client:
        found = sorted({acl for each in filters for acl in describe_acls(client, each)})
        if not found:
            if arguments.json:
                print_json([])
            else:
                print("there is no such rule")
            return 0
        for acl in () if arguments.yes else found:
            print(_sentence(acl), file=sys.stderr if arguments.json else sys.stdout)
        what = "this rule" if len(found) == 1 else f"these {len(found)} rules"
        if not confirm_change(f"Delete {what}?", client, arguments):
            return 1
        deleted = delete_acls(client, filters)
    if arguments.json:
        print_json([_document(acl) for acl in deleted])
    for acl in () if arguments.json else deleted:
        print(f"deleted: {_sentence(acl)}")
    return 0


def _filters(arguments: argparse.Namespace) -> Iterator[AclFilter]:
    """The filters that find the rules to delete."""
    from kbroker.security.authorizer.acls import AclFilter

    _check_convenience(arguments)
    principals: list[tuple[AclPermission, str | None]] = [(AclPermission.ALLOW, name) for name in arguments.allow]
    principals += [(AclPermission.DENY, name) for name in arguments.deny]
    resources = _resources(arguments)
    if not principals and not resources:
        raise UsageError("give whom it is for (--allow, --deny), or what it is for (--topic, --group ...)")
    pattern = PatternType.PREFIXED if arguments.prefix else PatternType.LITERAL
    parts: Iterable[tuple[ResourceType, str | None, AclOperation]]
    if not resources:
        parts = [(ResourceType.ANY, None, operation) for operation in arguments.operation or [AclOperation.ANY]]
    elif arguments.operation or arguments.producer or arguments.consumer:
        parts = _operations(arguments)
    else:
        parts = [(kind, name, AclOperation.ANY) for kind, name in resources]
    for kind, name, operation in parts:
        for permission, principal in principals or [(AclPermission.ANY, None)]:
            for host in arguments.host or [None]:
                named = PatternType.ANY if name is None else pattern
                if kind is ResourceType.CLUSTER:
                    named = PatternType.LITERAL
                yield AclFilter(kind, name, named, principal, host, operation, permission)


def _check_convenience(arguments: argparse.Namespace) -> None:
    if not arguments.producer and not arguments.consumer:
        return
    if arguments.operation:
        raise UsageError("--producer and --consumer stand for operations: leave --operation out")
    if arguments.deny:
        raise UsageError("--producer and --consumer say what is allowed: use --operation with --deny")
    if not arguments.topic:
        raise UsageError("--producer and --consumer need a --topic")
    if arguments.consumer and not arguments.group:
        raise UsageError("--consumer needs a --group")
    for option, allowed in (("group", arguments.consumer), ("transactional_id", arguments.producer)):
        if getattr(arguments, option) and not allowed:
            raise UsageError(
                f"--{option.replace('_', '-')} goes with {'--consumer' if option == 'group' else '--producer'}"
            )
    if arguments.cluster or arguments.delegation_token or arguments.user_principal:
        raise UsageError("--producer and --consumer are for topics, groups and transactional ids")


def _operations(arguments: argparse.Namespace) -> Iterator[tuple[ResourceType, str, AclOperation]]:
    """The pairs of a resource and an operation that the options name."""
    from kbroker.client.acls import OPERATIONS

    if arguments.producer or arguments.consumer:
        yield from _conveniences(arguments)
        return
    for kind, name in _resources(arguments):
        for operation in arguments.operation or [AclOperation.ALL]:
            if operation is not AclOperation.ALL and operation not in OPERATIONS[kind]:
                known = ", ".join(each.name.lower().replace("_", "-") for each in OPERATIONS[kind])
                told = operation.name.lower().replace("_", "-")
                raise UsageError(f"{told} means nothing for a {kind.name.lower()}, only all, {known}")
            yield kind, name, operation


def _conveniences(arguments: argparse.Namespace) -> Iterator[tuple[ResourceType, str, AclOperation]]:
    """The options ``--producer`` and ``--consumer`` of ``kafka-acls``."""
    on_topic = [AclOperation.DESCRIBE]
    if arguments.producer:
        on_topic += [AclOperation.WRITE, AclOperation.CREATE]
    if arguments.consumer:
        on_topic.append(AclOperation.READ)
    for name in arguments.topic:
        for operation in on_topic:
            yield ResourceType.TOPIC, name, operation
    for name in arguments.group:
        yield ResourceType.GROUP, name, AclOperation.READ
    for name in arguments.transactional_id:
        yield ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE
        yield ResourceType.TRANSACTIONAL_ID, name, AclOperation.DESCRIBE


def _resources(arguments: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    found = [(kind, name) for option, kind in _RESOURCES.items() for name in getattr(arguments, option)]
    if arguments.cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return list(dict.fromkeys(found))


def _sentence(acl: Acl) -> str:
    kind = acl.resource_type.name.lower().replace("_", " ")
    if acl.resource_type is ResourceType.CLUSTER:
        what = "the cluster"
    elif acl.pattern_type is PatternType.PREFIXED:
        what = f"each {kind} that begins with {acl.resource_name}"
    elif acl.resource_name == WILDCARD:
        what = f"every {kind}"
    else:
        what = f"{kind} {acl.resource_name}"
    may = "may not" if acl.permission is AclPermission.DENY else "may"
    where = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{acl.principal} {may} {acl.operation.name} {what}{where}"


ACTIONS = {
    "list": Action("list the rules, all or those for some resources or principals", _list_arguments, _list),
    "add": Action("allow or deny something", _add_arguments, _add, _ADD_DETAILS),
    "delete": Action("delete rules", _delete_arguments, _delete, _DELETE_DETAILS),
}
