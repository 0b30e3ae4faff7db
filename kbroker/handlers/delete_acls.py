"""DeleteAcls: the ACLs that filters find are removed. Without an authorizer all is answered SECURITY_DISABLED.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.acls import acl_filter, denied_message, has_unknown
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.acls import delete_acls
from kbroker.security.authorizer.acls import Acl
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def _check(request: DeleteAclsRequest) -> None:
    """Kafka cannot read a filter with an UNKNOWN element, and closes."""
    if any(map(has_unknown, request.filters)):
        raise CloseConnection("DeleteAcls with an UNKNOWN element")


@handler(DeleteAclsRequest, check=_check)
async def handle(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    """Remove them, and tell which."""
    _check(request)
    filters = request.filters
    if ctx.services.authorizer is None:
        return _all(filters, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    try:
        require_cluster(ctx, AclOperation.ALTER)
    except ApiError as error:
        return _all(filters, error.code, denied_message(error))
    wanted = [acl_filter(each) for each in filters]
    try:
        kept = ctx.services.kept_acls
        if kept is None:
            results = await ctx.services.metadata.submit(lambda view: delete_acls(view, wanted))
        else:
            results = await kept.delete(wanted, ctx)
    except ApiError as error:
        return _all(filters, error.code, error.message)
    return DeleteAclsResponse(filter_results=[_result(each) for each in results])


def _result(result: list[Acl] | ApiError) -> DeleteAclsFilterResult:
    if isinstance(result, ApiError):
        return DeleteAclsFilterResult(error_code=result.code, error_message=result.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in result
        ],
    )


def _all(filters: Sequence[DeleteAclsFilter], code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in filters]
    )
