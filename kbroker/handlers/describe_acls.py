"""DescribeAcls: the ACLs that a filter finds. Without an authorizer it is answered SECURITY_DISABLED.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.acls import acl_filter, denied_message, has_unknown
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.acls import acl_of
from kbroker.security.authorizer.acls import Acl, AclFilter
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handler(DescribeAclsRequest)
async def handle(request: DescribeAclsRequest, ctx: RequestContext) -> DescribeAclsResponse:
    """Those of this node's metadata, by resource. Kafka cannot read a filter with an UNKNOWN element, and closes."""
    if has_unknown(request):
        raise CloseConnection("DescribeAcls with an UNKNOWN element")
    if ctx.services.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    try:
        require_cluster(ctx, AclOperation.DESCRIBE)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=denied_message(error))
    wanted = acl_filter(request)
    try:
        found = await _acls(wanted, ctx)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    share = FairShare(ctx)
    for acl in found:
        await share.next()
        if not wanted.matches(acl):
            continue
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


async def _acls(wanted: AclFilter, ctx: RequestContext) -> Iterable[Acl]:
    """The ACLs that are to be looked through. ``ApiError`` where an authorizer of one's own does not tell its own."""
    kept = ctx.services.kept_acls
    return (
        map(acl_of, ctx.services.metadata.image.principals.acls.values()) if kept is None else await kept.find(wanted)
    )
