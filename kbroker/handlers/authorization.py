"""How handlers ask whether the principal of a request may do what it asks for (Kafka's ``AuthHelper``).

Without an authorizer everybody may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.errors import ApiError, ErrorCode
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, ResourceType
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext

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
    if allowed or audits_denial:
        api = API_KEYS[ctx.header.api_key].name
        authorizer.audit(allowed, principal, host, operation, resource_type, name, api)
    return allowed


def may_on_cluster(ctx: RequestContext, operation: AclOperation) -> bool:
    """Whether the request's principal may do this to the cluster."""
    return may(ctx, operation, ResourceType.CLUSTER, CLUSTER_NAME)


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


def allowed_names(
    ctx: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    audits_denial: bool = True,
) -> set[str]:
    """Those of ``names`` to which the request's principal may do this."""
    return {name for name in set(names) if may(ctx, operation, resource_type, name, audits_denial=audits_denial)}


def authorized_operations(ctx: RequestContext, resource_type: ResourceType, name: str) -> int:
    """A bit for each operation that the request's principal may do to a resource, as answers have it."""
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource_type]
        if may(ctx, operation, resource_type, name, audits_denial=False)
    )
