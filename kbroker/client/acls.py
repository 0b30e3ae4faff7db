"""Administrators' questions about ACLs: DescribeAcls, CreateAcls, DeleteAcls (keys 29 to 31)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ResponseError
from kbroker.security.authorizer.acls import Acl, AclFilter, word
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.wire.messages.acls import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
)

_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE, *_CONFIGS),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        *_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that mean something for each type of resource, besides ALL (``AclEntry.supportedOperations``).

A broker takes any of them for any resource; ``kafka-acls`` refuses the others, and so does ``kbroker acl``.
"""


def describe_acls(client: Client, wanted: AclFilter) -> list[Acl]:
    """The rules that a filter means, sorted."""
    response = client.ask_any(DescribeAclsRequest(**_filter_fields(wanted)))
    refuse(response.error_code, "ACLs", response.error_message)
    return sorted(_told_acl(resource, acl) for resource in response.resources for acl in resource.acls)


def create_acls(client: Client, acls: Sequence[Acl]) -> list[tuple[Acl, ResponseError]]:
    """Add rules; those that were refused, with the reason. A rule that is there already is no error."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )

    def check(response: CreateAclsResponse) -> None:
        for result in response.results:
            error = ResponseError(result.error_code, "ACLs", result.error_message)
            if result.error_code and error.retriable:
                raise error

    response = client.ask_controller(request, check)
    return [
        (acl, ResponseError(result.error_code, _told(acl), result.error_message))
        for acl, result in zip(acls, response.results, strict=True)
        if result.error_code
    ]


def delete_acls(client: Client, filters: Sequence[AclFilter]) -> list[Acl]:
    """Remove the rules that any of the filters means; those that were removed, sorted."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(wanted)) for wanted in filters])

    def check(response: DeleteAclsResponse) -> None:
        for result in response.filter_results:
            refuse(result.error_code, "ACLs", result.error_message)
            for match in result.matching_acls:
                refuse(match.error_code, "ACLs", match.error_message)

    response = client.ask_controller(request, check)
    return sorted({_told_acl(match, match) for result in response.filter_results for match in result.matching_acls})


class _FilterFields(TypedDict):
    """The fields of a filter, as DescribeAcls and DeleteAcls spell them."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def _filter_fields(wanted: AclFilter) -> _FilterFields:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _told_acl(
    pattern: DescribeAclsResource | DeleteAclsMatchingAcl, rule: AclDescription | DeleteAclsMatchingAcl
) -> Acl:
    """A rule of an answer: DescribeAcls has the pattern once for its rules, DeleteAcls each rule in one piece."""
    return Acl(
        word(ResourceType, pattern.resource_type),
        pattern.resource_name,
        word(PatternType, pattern.pattern_type),
        rule.principal,
        rule.host,
        word(AclOperation, rule.operation),
        word(AclPermission, rule.permission_type),
    )


def _told(acl: Acl) -> str:
    return f"{acl.permission.name} {acl.principal} {acl.operation.name} on {acl.resource_type.name} {acl.resource_name}"
