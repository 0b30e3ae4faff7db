"""The questions by which handlers learn what the principal of a request may do (Kafka's ``AuthHelper``).

Without an authorizer everybody may do everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.fair_share import FairShare
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext

_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
}
"""The operations that an answer's ``authorized_operations`` tells of (``AclEntry.supportedOperations``)."""

_ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations) for resource_type, operations in _OPERATIONS.items()
}

MOST_AUDITED_DENIALS = 100
"""Denials of one request that the audit log has a line for: one request can name a hundred thousand resources."""

May = Callable[[str], bool]
"""Whether a request's principal may do something to the resource of this name."""


def may(
    ctx: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str, *, audits_denial: bool = True
) -> bool:
    """Whether the request's principal may do this to a resource; the audit log hears of it.

    Without ``audits_denial`` a denial is no news: a listing merely leaves out what the principal may not see.
    """
    authorizer = ctx.authorizer
    if authorizer is None:
        return True
    principal, host = ctx.principal, ctx.host
    allowed = authorizer.authorize(principal, host, operation, resource_type, name)
    if allowed or (audits_denial and _may_audit_denial(ctx)):
        api = API_KEYS[ctx.header.api_key].name
        authorizer.audit(allowed, principal, host, operation, resource_type, name, api)
    return allowed


def _may_audit_denial(ctx: RequestContext) -> bool:
    """Count a denial; False once the audit log has as many of the request as it takes. The first too many is said."""
    count = ctx.denials = getattr(ctx, "denials", 0) + 1
    if count == MOST_AUDITED_DENIALS + 1:
        from kbroker.security.authorizer.audit import AUDIT_LOG
        from kbroker.security.shown import shown

        logging.getLogger(AUDIT_LOG).info(
            "Denied: %s from %s, more in the same %s, of which no line is written",
            shown(str(ctx.principal)),
            ctx.host,
            API_KEYS[ctx.header.api_key].name,
        )
    return count <= MOST_AUDITED_DENIALS


def require(
    ctx: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str, error: ErrorCode
) -> None:
    """``ApiError`` with ``error`` if the request's principal may not do this to a resource."""
    if ctx.authorizer is not None and not may(ctx, operation, resource_type, name):
        raise ApiError(error)


def require_group(ctx: RequestContext, operation: AclOperation, group_id: str) -> None:
    """``ApiError`` GROUP_AUTHORIZATION_FAILED if the request's principal may not do this to a group."""
    require(ctx, operation, ResourceType.GROUP, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def require_transactional_id(ctx: RequestContext, operation: AclOperation, transactional_id: str) -> None:
    """``ApiError`` TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the request's principal may not do this to the id."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    require(ctx, operation, ResourceType.TRANSACTIONAL_ID, transactional_id, code)


def may_each(
    ctx: RequestContext, operation: AclOperation, resource_type: ResourceType, *, audits_denial: bool = True
) -> May | None:
    """Asks for one name after the other, for each once however often it stands in the request.

    None without an authorizer: everything is allowed then, and nothing has to be asked.
    """
    if ctx.authorizer is None:
        return None
    known: dict[str, bool] = getattr(ctx, "prefetched_permissions", None) or {}

    def may_one(name: str) -> bool:
        allowed = known.get(name)
        if allowed is None:
            allowed = known[name] = may(ctx, operation, resource_type, name, audits_denial=audits_denial)
        return allowed

    return may_one


def rules_version(ctx: RequestContext) -> int | None:
    """Another number whenever a decision may be another; None without an authorizer."""
    authorizer = ctx.services.authorizer
    return None if authorizer is None else authorizer.version


def may_each_now(ctx: RequestContext, operation: AclOperation, resource_type: ResourceType) -> May | None:
    """Asks as :func:`may_each`, and anew once the rules have changed: for a request that waits."""
    authorizer, may_one = ctx.services.authorizer, may_each(ctx, operation, resource_type)
    if authorizer is None or may_one is None:
        return None
    rules = authorizer.version

    def may_now(name: str) -> bool:
        nonlocal rules, may_one
        if authorizer.version != rules:
            rules, may_one = authorizer.version, may_each(ctx, operation, resource_type)
        return may_one is None or may_one(name)

    return may_now


async def prefetch_permissions(
    ctx: RequestContext, operation: AclOperation, resource_type: ResourceType, names: Iterable[str]
) -> None:
    """Ask about each of ``names`` for the one :func:`may_each` of a plain handler. Gives way to others."""
    share = FairShare(ctx)
    known: dict[str, bool] = {}
    for name in names:
        if name not in known:
            await share.next()
            known[name] = may(ctx, operation, resource_type, name)
    ctx.prefetched_permissions = known


def would_allow(ctx: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Whether the request's principal may do this now, for later requests: the audit log does not hear of it."""
    authorizer = ctx.authorizer
    return authorizer is None or authorizer.authorize(ctx.principal, ctx.host, operation, resource_type, name)


def may_on_cluster(ctx: RequestContext, operation: AclOperation, *, audits_denial: bool = True) -> bool:
    """Whether the request's principal may do this to the cluster.

    Without ``audits_denial`` another permission does as well, and is asked next.
    """
    return may(ctx, operation, ResourceType.CLUSTER, CLUSTER_NAME, audits_denial=audits_denial)


def may_act_as_node(ctx: RequestContext) -> bool:
    """Whether the request's principal may do what nodes ask of one another: its connection is then a node's."""
    allowed = may_on_cluster(ctx, AclOperation.CLUSTER_ACTION)
    if allowed:
        ctx.connection.is_of_node = True
    return allowed


def require_cluster(ctx: RequestContext, operation: AclOperation) -> None:
    """``ApiError`` CLUSTER_AUTHORIZATION_FAILED if the request's principal may not do this to the cluster."""
    if not may_on_cluster(ctx, operation):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def may_on_any(ctx: RequestContext, operation: AclOperation, resource_type: ResourceType) -> bool:
    """Whether there may be a resource of this type that the request's principal may do this to."""
    authorizer = ctx.authorizer
    if authorizer is None:
        return True
    return authorizer.authorize_by_resource_type(ctx.principal, ctx.host, operation, resource_type)


async def allowed_names(
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    audits_denial: bool = True,
) -> set[str]:
    """The ``names`` to which the request's principal may do this, asked in their order. Gives way to others."""
    share = FairShare(ctx)
    allowed: set[str] = set()
    for name in dict.fromkeys(names):
        await share.next()
        if may(ctx, operation, resource_type, name, audits_denial=audits_denial):
            allowed.add(name)
    return allowed


def authorized_operations(ctx: RequestContext, resource_type: ResourceType, name: str) -> int:
    """A bit for each operation that the request's principal may do to a resource, as answers have it.

    The audit log does not hear of it: nothing is done.
    """
    authorizer = ctx.authorizer
    if authorizer is None:
        return _ALL_OPERATIONS[resource_type]
    principal, host = ctx.principal, ctx.host
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource_type]
        if authorizer.authorize(principal, host, operation, resource_type, name)
    )


def cluster_operations(ctx: RequestContext) -> int:
    """The cluster's authorized operations; none for a principal that may not describe it (``KafkaApis``)."""
    if not may_on_cluster(ctx, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(ctx, ResourceType.CLUSTER, CLUSTER_NAME)
