"""ACLs of the cluster: described, created and deleted. Without an authorizer each API is answered SECURITY_DISABLED.

DescribeAcls: the ACLs that a filter finds.
Served: 1 to 3. 2: flexible; 3: the resource type USER.

CreateAcls: ACLs are added, each with its own result.
Served: 1 to 3. 2: flexible; 3: the resource type USER.

DeleteAcls: the ACLs that filters find are removed.
Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.acls import acl_of, create_acls, delete_acls
from kbroker.security.authorizer.acls import Acl, AclFilter, word
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from kbroker.wire.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class _Filter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def acl_filter(item: _Filter) -> AclFilter:
    """The filter of a request. A code that nobody knows is UNKNOWN, and finds nothing."""
    return AclFilter(
        word(ResourceType, item.resource_type_filter),
        item.resource_name_filter,
        word(PatternType, item.pattern_type_filter),
        item.principal_filter,
        item.host_filter,
        word(AclOperation, item.operation),
        word(AclPermission, item.permission_type),
    )


def has_unknown(item: _Filter) -> bool:
    """Whether a filter says UNKNOWN somewhere: the code 0, not one that nobody knows."""
    return 0 in (item.pattern_type_filter, item.resource_type_filter, item.permission_type, item.operation)


def denied_message(error: ApiError) -> str:
    """The text of an answer to somebody who may not ask. Kafka's tells of the connection besides."""
    return error.message or "Cluster authorization failed."


@handler(DescribeAclsRequest)
async def handle_describe_acls(request: DescribeAclsRequest, ctx: RequestContext) -> DescribeAclsResponse:
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


def _check_created(request: CreateAclsRequest) -> None:
    """Kafka cannot read a creation with an UNKNOWN element, and closes."""
    for creation in request.creations:
        if 0 in (creation.resource_pattern_type, creation.resource_type, creation.permission_type, creation.operation):
            raise CloseConnection("CreateAcls with an UNKNOWN element")


@handler(CreateAclsRequest, check=_check_created)
async def handle_create_acls(request: CreateAclsRequest, ctx: RequestContext) -> CreateAclsResponse:
    """Add those that are valid."""
    _check_created(request)
    creations = request.creations
    if ctx.services.authorizer is None:
        return _all_created(creations, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    try:
        require_cluster(ctx, AclOperation.ALTER)
    except ApiError as error:
        return _all_created(creations, error.code, denied_message(error))
    acls = [_acl(creation) for creation in creations]
    if any(map(_has_any, acls)):
        # An ACL of ANY is no ACL, which fails the whole request in Kafka.
        return _all_created(creations, ErrorCode.UNKNOWN_SERVER_ERROR, None)
    problems = [_problem(acl) for acl in acls]
    valid = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None]
    errors: list[ApiError | None] = []
    if valid:
        try:
            kept = ctx.services.kept_acls
            if kept is None:
                errors = await ctx.services.metadata.submit(lambda view: create_acls(view, valid))
            else:
                errors = await kept.create(valid, ctx)
        except ApiError as error:
            if error.code == ErrorCode.NOT_CONTROLLER:
                return _all_created(creations, error.code, error.message)  # another node is to be asked for all of them
            errors = [error] * len(valid)
    of_valid = iter(errors)
    return CreateAclsResponse(
        results=[
            _created(next(of_valid) if problem is None else ApiError(ErrorCode.INVALID_REQUEST, problem))
            for problem in problems
        ]
    )


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        word(ResourceType, creation.resource_type),
        creation.resource_name,
        word(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        word(AclOperation, creation.operation),
        word(AclPermission, creation.permission_type),
    )


def _has_any(acl: Acl) -> bool:
    return (
        acl.resource_type is ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation is AclOperation.ANY
        or acl.permission is AclPermission.ANY
    )


def _problem(acl: Acl) -> str | None:
    """The reason why the controller is not even asked (``AclApis.handleCreateAcls``); None if it is."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    return None


def _created(error: ApiError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _all_created(creations: Sequence[AclCreation], code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code, error_message=message) for _ in creations])


def _check_deleted(request: DeleteAclsRequest) -> None:
    """Kafka cannot read a filter with an UNKNOWN element, and closes."""
    if any(map(has_unknown, request.filters)):
        raise CloseConnection("DeleteAcls with an UNKNOWN element")


@handler(DeleteAclsRequest, check=_check_deleted)
async def handle_delete_acls(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    """Remove them, and tell which."""
    _check_deleted(request)
    filters = request.filters
    if ctx.services.authorizer is None:
        return _all_deleted(filters, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    try:
        require_cluster(ctx, AclOperation.ALTER)
    except ApiError as error:
        return _all_deleted(filters, error.code, denied_message(error))
    wanted = [acl_filter(each) for each in filters]
    try:
        kept = ctx.services.kept_acls
        if kept is None:
            results = await ctx.services.metadata.submit(lambda view: delete_acls(view, wanted))
        else:
            results = await kept.delete(wanted, ctx)
    except ApiError as error:
        return _all_deleted(filters, error.code, error.message)
    return DeleteAclsResponse(filter_results=[_deleted(each) for each in results])


def _deleted(result: list[Acl] | ApiError) -> DeleteAclsFilterResult:
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


def _all_deleted(filters: Sequence[DeleteAclsFilter], code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in filters]
    )
