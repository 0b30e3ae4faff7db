"""CreateAcls: ACLs are added, each with its own result. Without an authorizer all are answered SECURITY_DISABLED.

Served: 1 to 3. 2: flexible; 3: the resource type USER.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.acls import denied_message
from kbroker.handlers.common.authorization import require_cluster
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.acls import create_acls
from kbroker.security.authorizer.acls import Acl, word
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from kbroker.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse


def _check(request: CreateAclsRequest) -> None:
    """Kafka cannot read a creation with an UNKNOWN element, and closes."""
    for creation in request.creations:
        if 0 in (creation.resource_pattern_type, creation.resource_type, creation.permission_type, creation.operation):
            raise CloseConnection("CreateAcls with an UNKNOWN element")


@handler(CreateAclsRequest, check=_check)
async def handle(request: CreateAclsRequest, ctx: RequestContext) -> CreateAclsResponse:
    """Add those that are valid."""
    _check(request)
    creations = request.creations
    if ctx.services.authorizer is None:
        return _all(creations, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    try:
        require_cluster(ctx, AclOperation.ALTER)
    except ApiError as error:
        return _all(creations, error.code, denied_message(error))
    acls = [_acl(creation) for creation in creations]
    if any(map(_has_any, acls)):
        # An ACL of ANY is no ACL, which fails the whole request in Kafka.
        return _all(creations, ErrorCode.UNKNOWN_SERVER_ERROR, None)
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
                return _all(creations, error.code, error.message)  # another node is to be asked for all of them
            errors = [error] * len(valid)
    of_valid = iter(errors)
    return CreateAclsResponse(
        results=[
            _result(next(of_valid) if problem is None else ApiError(ErrorCode.INVALID_REQUEST, problem))
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


def _result(error: ApiError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _all(creations: Sequence[AclCreation], code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code, error_message=message) for _ in creations])
